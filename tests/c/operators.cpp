// Every operator with every data type in every layout, against formulas in long double.
#include "device.hpp"

#include "aclnnop/aclnn_fast_gelu.h"
#include "aclnnop/aclnn_fast_gelu_backward.h"
#include "aclnnop/aclnn_gelu.h"
#include "aclnnop/aclnn_gelu_backward_v2.h"
#include "aclnnop/aclnn_gelu_v2.h"
#include "aclnnop/aclnn_hardswish.h"
#include "aclnnop/aclnn_hardswish_backward.h"
#include "aclnnop/aclnn_layer_norm.h"
#include "aclnnop/aclnn_layer_norm_backward.h"
#include "aclnnop/aclnn_silu.h"
#include "aclnnop/aclnn_silu_backward.h"

namespace {

using Real = long double;
using Values = std::vector<double>;
using Second = aclnnStatus (*)(void*, uint64_t, aclOpExecutor*, aclrtStream);

const aclDataType kTypes[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
const char* const kTypeNames[] = {"float32", "float16", "bfloat16"};
int cases = 0;

// Distances from the exact value, in units of the last place: a float32 slope is off by at most 1.1 of its own, which may
// be 2.2 of the product's.
const double kFloat = 3, kHalf = 0.75;

Real sigmoid(Real x) { return 1 / (1 + std::exp(-x)); }
Real phi_integral(Real x) { return std::erfc(-x / std::sqrt(2.0L)) / 2; }
Real phi(Real x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0L)); }
const Real kTanhScale = 2 * std::sqrt(2 / std::acos(-1.0L));

Real silu(Real x) { return x * sigmoid(x); }
Real fast_gelu(Real x) { return x * sigmoid(1.702L * x); }
Real gelu_erf(Real x) { return x * phi_integral(x); }
Real gelu_tanh(Real x) { return x * sigmoid(kTanhScale * (x + 0.044715L * x * x * x)); }
Real hardswish(Real x) { return x >= 3 ? x : x <= -3 ? 0 : x * (x + 3) / 6; }

Real slope_of_scaled(Real x, Real u, Real du)
{
    return sigmoid(u) + x * sigmoid(u) * sigmoid(-u) * du;
}
Real silu_derivative(Real x) { return slope_of_scaled(x, x, 1); }
Real fast_gelu_derivative(Real x) { return slope_of_scaled(x, 1.702L * x, 1.702L); }
Real gelu_erf_derivative(Real x) { return phi_integral(x) + x * phi(x); }
Real gelu_tanh_derivative(Real x)
{
    return slope_of_scaled(x, kTanhScale * (x + 0.044715L * x * x * x), kTanhScale * (1 + 3 * 0.044715L * x * x));
}
Real hardswish_derivative(Real x) { return x < -3 ? 0 : x > 3 ? 1 : x / 3 + 0.5L; }

aclnnStatus gelu_v2_erf(const aclTensor* x, aclTensor* y, uint64_t* size, aclOpExecutor** executor)
{
    return aclnnGeluV2GetWorkspaceSize(x, 0, y, size, executor);
}
aclnnStatus gelu_v2_tanh(const aclTensor* x, aclTensor* y, uint64_t* size, aclOpExecutor** executor)
{
    return aclnnGeluV2GetWorkspaceSize(x, 1, y, size, executor);
}
aclnnStatus hardswish_first(const aclTensor* x, aclTensor* y, uint64_t* size, aclOpExecutor** executor)
{
    return aclnnHardswishGetWorkspaceSize(x, y, size, executor);
}
aclnnStatus gelu_backward(const char* mode, const aclTensor* dy, const aclTensor* x, aclTensor* dx, uint64_t* size,
                          aclOpExecutor** executor)
{
    char approximate[8];
    std::strcpy(approximate, mode);  // read in the first phase only: it is gone afterwards
    return aclnnGeluBackwardV2GetWorkspaceSize(dy, x, approximate, dx, size, executor);
}
aclnnStatus gelu_backward_erf(const aclTensor* dy, const aclTensor* x, aclTensor* dx, uint64_t* size,
                              aclOpExecutor** executor)
{
    return gelu_backward("none", dy, x, dx, size, executor);
}
aclnnStatus gelu_backward_tanh(const aclTensor* dy, const aclTensor* x, aclTensor* dx, uint64_t* size,
                               aclOpExecutor** executor)
{
    return gelu_backward("tanh", dy, x, dx, size, executor);
}

struct Forward {
    const char* name;
    aclnnStatus (*first)(const aclTensor*, aclTensor*, uint64_t*, aclOpExecutor**);
    Second second;
    Real (*formula)(Real);
};
const Forward kForward[] = {
    {"FastGelu", aclnnFastGeluGetWorkspaceSize, aclnnFastGelu, fast_gelu},
    {"Silu", aclnnSiluGetWorkspaceSize, aclnnSilu, silu},
    {"Gelu", aclnnGeluGetWorkspaceSize, aclnnGelu, gelu_tanh},
    {"GeluV2 erf", gelu_v2_erf, aclnnGeluV2, gelu_erf},
    {"GeluV2 tanh", gelu_v2_tanh, aclnnGeluV2, gelu_tanh},
    {"Hardswish", hardswish_first, aclnnHardswish, hardswish},
};

struct Backward {
    const char* name;
    aclnnStatus (*first)(const aclTensor*, const aclTensor*, aclTensor*, uint64_t*, aclOpExecutor**);
    Second second;
    Real (*slope)(Real);
};
const Backward kBackward[] = {
    {"FastGeluBackward", aclnnFastGeluBackwardGetWorkspaceSize, aclnnFastGeluBackward, fast_gelu_derivative},
    {"SiluBackward", aclnnSiluBackwardGetWorkspaceSize, aclnnSiluBackward, silu_derivative},
    {"GeluBackwardV2 none", gelu_backward_erf, aclnnGeluBackwardV2, gelu_erf_derivative},
    {"GeluBackwardV2 tanh", gelu_backward_tanh, aclnnGeluBackwardV2, gelu_tanh_derivative},
    {"HardswishBackward", aclnnHardswishBackwardGetWorkspaceSize, aclnnHardswishBackward, hardswish_derivative},
};

// The same numbers in every run: a linear congruential generator.
Values random_values(int64_t size, double limit, uint32_t seed)
{
    Values result;
    uint32_t state = seed * 2654435761U + 1;
    for (int64_t i = 0; i < size; i++) {
        state = state * 1664525U + 1013904223U;
        result.push_back((static_cast<double>(state >> 8) / (1 << 24) - 0.5) * 2 * limit);
    }
    return result;
}

Values arguments(int64_t size)
{
    const Values special = {0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 1e-4, -5.5, 20.0, -20.0, NAN};
    Values result = random_values(size, 8, 7);
    for (size_t i = 0; i < special.size() && static_cast<int64_t>(i) < size; i++) {
        result[i] = special[i];
    }
    return result;
}

void expect_close(const std::string& name, aclDataType type, const Values& got, const std::vector<Real>& exact,
                  double units, const std::vector<Real>& magnitudes = {})
{
    expect(got.size() == exact.size(), name + ": size");
    for (size_t i = 0; i < got.size(); i++) {
        const double value = static_cast<double>(exact[i]);
        const double largest = magnitudes.empty() ? value : static_cast<double>(magnitudes[i]);
        // Results below the least normal float32 are rounded at another place by every step before them.
        const double allowed = std::max(units * spacing(type, std::max(std::fabs(value), std::fabs(largest))), 1e-44);
        const bool close = std::isnan(value) ? std::isnan(got[i]) : std::fabs(got[i] - value) <= allowed;
        if (!close) {
            char text[200];
            std::snprintf(text, sizeof text, "%s: element %zu: expected %.9g, got %.9g", name.c_str(), i, value,
                          got[i]);
            fail(text);
        }
    }
}

double tolerance(aclDataType type) { return type == ACL_FLOAT ? kFloat : kHalf; }

const Shape kShape = {3, 4, 5};

// Sixty elements, in each way that strides and offsets allow.
const std::pair<const char*, Layout> kLayouts[] = {
    {"contiguous", {kShape, {20, 5, 1}, 0}},
    {"transposed", {kShape, {1, 3, 12}, 0}},
    {"gaps and an offset", {kShape, {60, 14, 2}, 7}},
    {"negative strides", {kShape, {-20, 5, -1}, 44}},
};
const std::pair<const char*, Layout> kInputLayouts[] = {
    {"zero strides", {kShape, {0, 1, 0}, 2}},
    {"overlapping", {kShape, {1, 1, 1}, 0}},
};

void forward(const Forward& op, aclrtStream stream, size_t t, const char* how, const Layout& in, const Layout& out)
{
    const std::string name = std::string(op.name) + " " + kTypeNames[t] + " " + how;
    Tensor x(kTypes[t], in, arguments(count(in.shape))), y(kTypes[t], out);
    compute(name, stream, [&](uint64_t* s, aclOpExecutor** e) { return op.first(x.handle(), y.handle(), s, e); },
            op.second);
    std::vector<Real> exact;
    for (double value : x.given()) {
        exact.push_back(op.formula(value));
    }
    expect_close(name, kTypes[t], y.fetch(name), exact, tolerance(kTypes[t]));
    cases++;
}

void backward(const Backward& op, aclrtStream stream, size_t t, const std::string& how, const Layout& dy_layout,
              const Layout& x_layout, const Layout& out, int in_place = -1)
{
    const std::string name = std::string(op.name) + " " + kTypeNames[t] + " " + how;
    const aclDataType type = kTypes[t];
    Tensor dy(type, dy_layout, random_values(count(dy_layout.shape), 2, 3));
    Tensor x(type, x_layout, arguments(count(x_layout.shape)));
    Tensor own(type, out);
    const Tensor& dx = in_place == 0 ? dy : in_place == 1 ? x : own;
    const Values slopes = x.given(), gradients = dy.given();
    std::vector<Real> exact;
    for (size_t i = 0; i < slopes.size(); i++) {
        exact.push_back(gradients[i] * op.slope(slopes[i]));
    }
    compute(name, stream,
            [&](uint64_t* s, aclOpExecutor** e) { return op.first(dy.handle(), x.handle(), dx.handle(), s, e); },
            op.second);
    expect_close(name, type, dx.fetch(name), exact, tolerance(type));
    cases++;
}

void elementwise(aclrtStream stream)
{
    const Layout plain = kLayouts[0].second, scalar{{}, {}, 0}, empty{{2, 0, 3}, {0, 3, 1}, 0};
    for (size_t t = 0; t < 3; t++) {
        for (const Forward& op : kForward) {
            for (const auto& [how, layout] : kLayouts) {
                forward(op, stream, t, how, layout, layout);
                forward(op, stream, t, how, layout, plain);
                forward(op, stream, t, how, plain, layout);
            }
            for (const auto& [how, layout] : kInputLayouts) {
                forward(op, stream, t, how, layout, plain);
            }
            forward(op, stream, t, "of one element", scalar, scalar);
            forward(op, stream, t, "of nothing", empty, empty);
        }
        for (const Backward& op : kBackward) {
            for (const auto& [how, layout] : kLayouts) {
                backward(op, stream, t, how, layout, plain, plain);
                backward(op, stream, t, how, plain, layout, plain);
                backward(op, stream, t, how, plain, plain, layout);
                backward(op, stream, t, std::string(how) + " in place of dy", layout, plain, plain, 0);
                backward(op, stream, t, std::string(how) + " in place of x", plain, layout, plain, 1);
            }
            for (const auto& [how, layout] : kInputLayouts) {
                backward(op, stream, t, how, layout, plain, plain);
                backward(op, stream, t, how, plain, layout, plain);
            }
            backward(op, stream, t, "of one element", scalar, scalar, scalar);
            backward(op, stream, t, "of nothing", empty, empty, empty);
        }
    }
}

void inplace_hardswish(aclrtStream stream)
{
    for (size_t t = 0; t < 3; t++) {
        for (const auto& [how, layout] : kLayouts) {
            const std::string name = std::string("InplaceHardswish ") + kTypeNames[t] + " " + how;
            Tensor x(kTypes[t], layout, arguments(count(layout.shape)));
            std::vector<Real> exact;
            for (double value : x.given()) {
                exact.push_back(hardswish(value));
            }
            compute(name, stream,
                    [&](uint64_t* s, aclOpExecutor** e) {
                        return aclnnInplaceHardswishGetWorkspaceSize(x.handle(), s, e);
                    },
                    aclnnInplaceHardswish);
            expect_close(name, kTypes[t], x.fetch(name), exact, tolerance(kTypes[t]));
            cases++;
        }
    }
}

// GeluBackwardV2 broadcasts, and promotes two different types to float32.
void broadcast_and_promotion(aclrtStream stream)
{
    const std::pair<Shape, Shape> pairs[] = {
        {{3, 4, 5}, {5}}, {{4, 1}, {3, 1, 5}}, {{}, {3, 4, 5}}, {{1, 1, 1, 5}, {3, 4, 1}}, {{0, 5}, {1, 5}}};
    for (size_t a = 0; a < 3; a++) {
        for (size_t b = 0; b < 3; b++) {
            for (const auto& [first, second] : pairs) {
                const size_t rank = std::max(first.size(), second.size());
                Shape shape(rank, 1);
                for (size_t axis = 0; axis < rank; axis++) {
                    for (const Shape& one : {first, second}) {
                        if (axis + one.size() >= rank && one[axis + one.size() - rank] != 1) {
                            shape[axis] = one[axis + one.size() - rank];
                        }
                    }
                }
                const aclDataType type = a == b ? kTypes[a] : ACL_FLOAT;
                const std::string name = std::string("GeluBackwardV2 ") + kTypeNames[a] + " with " + kTypeNames[b];
                Tensor dy(kTypes[a], {first, contiguous(first), 0}, random_values(count(first), 2, 5));
                Tensor x(kTypes[b], {second, contiguous(second), 0}, random_values(count(second), 6, 6));
                Tensor dx(type, {shape, contiguous(shape), 0});
                compute(name, stream,
                        [&](uint64_t* s, aclOpExecutor** e) {
                            return gelu_backward_erf(dy.handle(), x.handle(), dx.handle(), s, e);
                        },
                        aclnnGeluBackwardV2);
                const Values dys = dy.given(), xs = x.given();
                std::vector<Real> exact;
                for (int64_t i = 0; i < count(shape); i++) {
                    int64_t at[2] = {0, 0}, rest = i, step[2] = {1, 1};
                    for (size_t axis = rank; axis-- > 0;) {
                        const int64_t index = rest % shape[axis];
                        rest /= shape[axis];
                        const Shape* ones[2] = {&first, &second};
                        for (int k = 0; k < 2; k++) {
                            if (axis + ones[k]->size() >= rank) {
                                const int64_t extent = (*ones[k])[axis + ones[k]->size() - rank];
                                at[k] += extent == 1 ? 0 : index * step[k];
                                step[k] *= extent;
                            }
                        }
                    }
                    exact.push_back(dys[static_cast<size_t>(at[0])]
                                    * gelu_erf_derivative(xs[static_cast<size_t>(at[1])]));
                }
                expect_close(name, type, dx.fetch(name), exact, tolerance(type));
                cases++;
            }
        }
    }
}

struct Norm {
    const char* name;
    Shape outer, inner;
    bool swapped;
};
const Norm kNorms[] = {
    {"4x5 over 6", {4, 5}, {6}, false}, {"7 over 3x4", {7}, {3, 4}, false}, {"over everything", {}, {5, 3}, false},
    {"strided", {4, 5}, {6}, true},     {"no rows", {0, 2}, {6}, false},    {"no columns", {4}, {0}, false},
    {"one column", {9}, {1}, false}};

Layout laid_out(const Shape& shape, bool swapped)
{
    Layout layout{shape, contiguous(shape), 0};
    if (swapped) {
        int64_t step = 2;
        for (size_t axis = 0; axis < shape.size(); axis++) {
            layout.strides[axis] = step;
            step *= shape[axis];
        }
        layout.offset = 3;
    }
    return layout;
}

Shape joined(const Shape& outer, const Shape& inner)
{
    Shape shape = outer;
    shape.insert(shape.end(), inner.begin(), inner.end());
    return shape;
}

// Sums are compared in units of their largest term: their own last place means nothing where they cancel.
double norm_units(aclDataType type) { return type == ACL_FLOAT ? 16 : 1; }

void layer_norm_backward(aclrtStream stream, const Norm& norm, size_t t, unsigned mask, bool weighted)
{
    const aclDataType type = kTypes[t];
    const std::string name = std::string("LayerNormBackward ") + kTypeNames[t] + " " + norm.name + " mask "
                             + std::to_string(mask) + (weighted ? " weighted" : "");
    const Shape shape = joined(norm.outer, norm.inner), rows_shape = joined(norm.outer, Shape(norm.inner.size(), 1));
    const size_t rows = static_cast<size_t>(count(norm.outer)), columns = static_cast<size_t>(count(norm.inner));
    Tensor dy(type, laid_out(shape, norm.swapped), random_values(count(shape), 2, 11));
    Tensor x(type, laid_out(shape, norm.swapped), random_values(count(shape), 2, 12));
    Tensor mean(type, laid_out(rows_shape, norm.swapped), random_values(count(rows_shape), 1, 13));
    Tensor rstd(type, laid_out(rows_shape, norm.swapped), random_values(count(rows_shape), 1, 14));
    Tensor weight(type, laid_out(norm.inner, norm.swapped), random_values(count(norm.inner), 2, 15));
    Tensor dx(type, laid_out(shape, norm.swapped)), dw(type, laid_out(norm.inner, norm.swapped)),
        db(type, laid_out(norm.inner, norm.swapped));
    const bool wanted[3] = {(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0};
    aclBoolArray* flags = aclCreateBoolArray(wanted, 3);
    aclIntArray* normalized = aclCreateIntArray(norm.inner.data(), norm.inner.size());
    compute(name, stream,
            [&](uint64_t* s, aclOpExecutor** e) {
                const aclnnStatus status = aclnnLayerNormBackwardGetWorkspaceSize(
                    dy.handle(), x.handle(), normalized, mean.handle(), rstd.handle(),
                    weighted ? weight.handle() : nullptr, nullptr, flags, wanted[0] ? dx.handle() : nullptr,
                    wanted[1] ? dw.handle() : nullptr, wanted[2] ? db.handle() : nullptr, s, e);
                ok(aclDestroyBoolArray(flags) | aclDestroyIntArray(normalized), "arrays");
                return status;
            },
            aclnnLayerNormBackward);
    const Values dys = dy.given(), xs = x.given(), means = mean.given(), rstds = rstd.given(), ws = weight.given();
    std::vector<Real> exact_dx, exact_dw(columns), exact_db(columns), size_dx, size_dw(columns, 1), size_db(columns, 1);
    for (size_t r = 0; r < rows; r++) {
        Real sum = 0, product = 0, largest = 0;
        for (size_t c = 0; c < columns; c++) {
            const size_t i = r * columns + c;
            const Real hat = (xs[i] - static_cast<Real>(means[r])) * rstds[r], g = dys[i] * (weighted ? ws[c] : 1.0L);
            sum += g;
            product += g * hat;
            largest = std::max({largest, std::fabs(g), std::fabs(g * hat * hat)});
            exact_dw[c] += dys[i] * hat;
            exact_db[c] += dys[i];
            size_dw[c] = std::max(size_dw[c], std::fabs(exact_dw[c]));
            size_db[c] = std::max(size_db[c], std::fabs(exact_db[c]));
        }
        for (size_t c = 0; c < columns; c++) {
            const size_t i = r * columns + c;
            const Real hat = (xs[i] - static_cast<Real>(means[r])) * rstds[r], g = dys[i] * (weighted ? ws[c] : 1.0L);
            exact_dx.push_back((g - sum / columns - hat * product / columns) * rstds[r]);
            size_dx.push_back(std::max(largest, 1.0L));
        }
    }
    if (wanted[0] && columns > 0) {
        expect_close(name + " dx", type, dx.fetch(name), exact_dx, norm_units(type), size_dx);
    }
    if (wanted[1] && columns > 0) {
        expect_close(name + " dw", type, dw.fetch(name), exact_dw, norm_units(type), size_dw);
    }
    if (wanted[2] && columns > 0) {
        expect_close(name + " db", type, db.fetch(name), exact_db, norm_units(type), size_db);
    }
    for (int k = 0; k < 3; k++) {
        const Tensor& out = k == 0 ? dx : k == 1 ? dw : db;
        for (double value : wanted[k] ? Values() : out.fetch(name)) {
            expect(std::isnan(value), name + ": an output that was masked out was written");
        }
    }
    cases++;
}

void layer_norm(aclrtStream stream, const Norm& norm, size_t t, bool with_mode)
{
    const aclDataType type = kTypes[t];
    const double eps = 1e-5;
    const std::string name = std::string("LayerNorm ") + kTypeNames[t] + " " + norm.name;
    const Shape shape = joined(norm.outer, norm.inner), rows_shape = joined(norm.outer, Shape(norm.inner.size(), 1));
    const size_t rows = static_cast<size_t>(count(norm.outer)), columns = static_cast<size_t>(count(norm.inner));
    Tensor x(type, laid_out(shape, norm.swapped), random_values(count(shape), 2, 21));
    Tensor weight(type, laid_out(norm.inner, norm.swapped), random_values(count(norm.inner), 2, 22));
    Tensor bias(type, laid_out(norm.inner, norm.swapped), random_values(count(norm.inner), 2, 23));
    Tensor out(type, laid_out(shape, norm.swapped)), mean(ACL_FLOAT, laid_out(rows_shape, norm.swapped)),
        rstd(ACL_FLOAT, laid_out(rows_shape, norm.swapped));
    aclIntArray* normalized = aclCreateIntArray(norm.inner.data(), norm.inner.size());
    compute(name, stream,
            [&](uint64_t* s, aclOpExecutor** e) {
                return with_mode ? aclnnLayerNormWithImplModeGetWorkspaceSize(
                           x.handle(), normalized, weight.handle(), bias.handle(), eps, out.handle(), mean.handle(),
                           rstd.handle(), 0, s, e)
                                 : aclnnLayerNormGetWorkspaceSize(x.handle(), normalized, weight.handle(),
                                                                  bias.handle(), eps, out.handle(), mean.handle(),
                                                                  rstd.handle(), s, e);
            },
            with_mode ? aclnnLayerNormWithImplMode : aclnnLayerNorm);
    ok(aclDestroyIntArray(normalized), "normalizedShape");
    const Values xs = x.given(), ws = weight.given(), bs = bias.given();
    std::vector<Real> exact, means, rstds, sizes;
    for (size_t r = 0; r < rows; r++) {
        Real sum = 0, squares = 0;
        for (size_t c = 0; c < columns; c++) {
            sum += xs[r * columns + c];
        }
        const Real average = columns == 0 ? 0 : sum / columns;
        for (size_t c = 0; c < columns; c++) {
            squares += (xs[r * columns + c] - average) * (xs[r * columns + c] - average);
        }
        means.push_back(average);
        rstds.push_back(columns == 0 ? NAN : 1 / std::sqrt(squares / columns + eps));
        for (size_t c = 0; c < columns; c++) {
            const Real hat = (xs[r * columns + c] - average) * rstds.back();
            exact.push_back(hat * ws[c] + bs[c]);
            sizes.push_back(std::fabs(hat * ws[c]) + std::fabs(static_cast<Real>(bs[c])) + 1);
        }
    }
    expect_close(name, type, out.fetch(name), exact, norm_units(type), sizes);
    expect_close(name + " mean", ACL_FLOAT, mean.fetch(name), means, 16, std::vector<Real>(rows, 2));
    expect_close(name + " rstd", ACL_FLOAT, rstd.fetch(name), rstds, 16);
    cases++;
}

void norms(aclrtStream stream)
{
    for (size_t t = 0; t < 3; t++) {
        for (const Norm& norm : kNorms) {
            layer_norm_backward(stream, norm, t, 7, true);
            layer_norm_backward(stream, norm, t, 7, false);
            layer_norm(stream, norm, t, norm.swapped);
        }
        for (unsigned mask = 0; mask < 7; mask++) {
            layer_norm_backward(stream, kNorms[0], t, mask, true);
        }
    }
}

}  // namespace

int main(int argc, char** argv)
{
    const std::string part = argc > 1 ? argv[1] : "";
    aclrtStream stream = nullptr;
    ok(aclInit(nullptr), "aclInit");
    ok(aclrtSetDevice(0), "aclrtSetDevice");
    ok(aclrtCreateStream(&stream), "aclrtCreateStream");
    if (part != "norms") {
        elementwise(stream);
        inplace_hardswish(stream);
        broadcast_and_promotion(stream);
    }
    if (part != "elementwise") {
        norms(stream);
    }
    ok(aclrtDestroyStream(stream), "aclrtDestroyStream");
    ok(aclrtResetDevice(0), "aclrtResetDevice");
    ok(aclFinalize(), "aclFinalize");
    std::printf("%d cases\n", cases);
    return 0;
}
