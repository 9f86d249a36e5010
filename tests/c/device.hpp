// What the C++ test programs share: 16-bit floats, device tensors with guarded storage, and one way to complain.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"

inline void fail(const std::string& what)
{
    const char* text = aclGetRecentErrMsg();
    std::printf("FAILED %s\n%s\n", what.c_str(), text == nullptr ? "" : text);
    std::exit(1);
}

inline void expect(bool holds, const std::string& what)
{
    if (!holds) {
        fail(what);
    }
}

inline void ok(int status, const std::string& what)
{
    expect(status == 0, what + ": status " + std::to_string(status));
}

inline size_t size_of(aclDataType type) { return type == ACL_INT64 ? 8 : type == ACL_FLOAT ? 4 : 2; }

inline float widen(aclDataType type, const void* from)
{
    uint32_t bits = 0;
    float value;
    if (type == ACL_INT64) {
        int64_t whole;
        std::memcpy(&whole, from, 8);
        return static_cast<float>(whole);
    }
    if (type == ACL_FLOAT) {
        std::memcpy(&value, from, 4);
        return value;
    }
    uint16_t half;
    std::memcpy(&half, from, 2);
    if (type == ACL_BF16) {
        bits = static_cast<uint32_t>(half) << 16;
        std::memcpy(&value, &bits, 4);
        return value;
    }
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31) {
        value = fraction != 0 ? NAN : INFINITY;
    } else {
        value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                              : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
    }
    return half >> 15 ? -value : value;
}

// The distance to the next number of that type, at this magnitude.
inline double spacing(aclDataType type, double value)
{
    const int digits = type == ACL_FLOAT ? 24 : type == ACL_FLOAT16 ? 11 : 8;
    const int least = type == ACL_FLOAT16 ? -24 : type == ACL_BF16 ? -133 : -149;
    int exponent = 0;
    std::frexp(value, &exponent);
    return std::ldexp(1.0, value == 0 ? least : std::max(exponent - digits, least));
}

// Ordinary values only: they are representable or are rounded here, ties to even.
inline void narrow(aclDataType type, double value, void* to)
{
    if (type == ACL_INT64) {
        const int64_t whole = static_cast<int64_t>(value);
        std::memcpy(to, &whole, 8);
        return;
    }
    const double unit = spacing(type, value);
    const float rounded = static_cast<float>(type == ACL_FLOAT ? value : std::nearbyint(value / unit) * unit);
    uint32_t bits;
    std::memcpy(&bits, &rounded, 4);
    uint16_t half = static_cast<uint16_t>(bits >> 16);
    if (type == ACL_FLOAT) {
        std::memcpy(to, &rounded, 4);
        return;
    }
    if (type == ACL_FLOAT16) {
        const double magnitude = std::fabs(rounded);
        int exponent = 0;
        std::frexp(magnitude, &exponent);
        const int biased = magnitude < std::ldexp(1.0, -14) ? 0 : exponent + 14;
        const int fraction = static_cast<int>(std::ldexp(magnitude, biased == 0 ? 24 : 25 - biased)) & 1023;
        half = static_cast<uint16_t>((std::signbit(rounded) ? 0x8000 : 0) | biased << 10 | fraction);
        if (std::isnan(rounded)) {
            half = 0x7E00;
        }
    }
    std::memcpy(to, &half, 2);
}

using Shape = std::vector<int64_t>;

inline int64_t count(const Shape& shape)
{
    int64_t result = 1;
    for (int64_t extent : shape) {
        result *= extent;
    }
    return result;
}

inline Shape contiguous(const Shape& shape)
{
    Shape strides(shape.size(), 1);
    for (size_t axis = shape.size(); axis-- > 1;) {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    return strides;
}

// How a tensor lies in its storage.
struct Layout {
    Shape shape, strides;
    int64_t offset = 0;
};

// Where the element of that place in logical order lies, in elements from the storage's beginning.
inline int64_t place(const Layout& layout, int64_t index)
{
    int64_t at = layout.offset;
    for (size_t axis = layout.shape.size(); axis-- > 0;) {
        at += index % layout.shape[axis] * layout.strides[axis];
        index /= layout.shape[axis];
    }
    return at;
}

// A tensor in device memory of its own, with guard bytes before, between and behind its elements.
class Tensor {
public:
    Tensor(aclDataType type, Layout layout, const std::vector<double>& values = {}, bool poisoned = false)
        : type_(type), layout_(std::move(layout))
    {
        int64_t elements = 1;
        for (int64_t i = 0; i < count(layout_.shape); i++) {
            elements = std::max(elements, place(layout_, i) + 1);
        }
        storage_.assign((static_cast<size_t>(elements) + kGuard) * size_of(type), kPattern);
        for (size_t i = 0; i < values.size(); i++) {
            narrow(type, values[i], storage_.data() + at(static_cast<int64_t>(i)));
        }
        (void)poisoned;
        ok(aclrtMalloc(&address_, storage_.size(), ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
        ok(aclrtMemcpy(address_, storage_.size(), storage_.data(), storage_.size(), ACL_MEMCPY_HOST_TO_DEVICE), "in");
        const Shape storage{elements};
        handle_ = aclCreateTensor(layout_.shape.data(), layout_.shape.size(), type, layout_.strides.data(),
                                  layout_.offset, ACL_FORMAT_ND, storage.data(), 1, address_);
        expect(handle_ != nullptr, "aclCreateTensor");
    }
    Tensor(const Tensor&) = delete;
    Tensor& operator=(const Tensor&) = delete;
    ~Tensor()
    {
        ok(aclDestroyTensor(handle_), "aclDestroyTensor");
        ok(aclrtFree(address_), "aclrtFree");
    }

    aclTensor* handle() const { return handle_; }
    aclDataType type() const { return type_; }
    int64_t size() const { return count(layout_.shape); }

    // What the device reads: the values as they were rounded to the type.
    std::vector<double> given() const
    {
        std::vector<double> result;
        for (int64_t i = 0; i < size(); i++) {
            result.push_back(widen(type_, storage_.data() + at(i)));
        }
        return result;
    }

    // What the device wrote; nothing but the elements may have changed.
    std::vector<double> fetch(const std::string& name) const
    {
        std::vector<unsigned char> now(storage_.size());
        ok(aclrtMemcpy(now.data(), now.size(), address_, now.size(), ACL_MEMCPY_DEVICE_TO_HOST), "out");
        std::vector<double> result;
        for (int64_t i = 0; i < size(); i++) {
            result.push_back(widen(type_, now.data() + at(i)));
        }
        for (int64_t i = 0; i < size(); i++) {
            std::memcpy(now.data() + at(i), storage_.data() + at(i), size_of(type_));
        }
        expect(now == storage_, name + ": bytes outside of the view were written");
        return result;
    }

private:
    static constexpr size_t kGuard = 32;
    static constexpr unsigned char kPattern = 0xFF;

    size_t at(int64_t index) const { return static_cast<size_t>(place(layout_, index)) * size_of(type_); }

    aclDataType type_;
    Layout layout_;
    std::vector<unsigned char> storage_;
    void* address_ = nullptr;
    aclTensor* handle_ = nullptr;
};

// Runs both phases and waits.
template <typename First, typename Second>
void compute(const std::string& name, aclrtStream stream, First first, Second second)
{
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    void* workspace = nullptr;
    ok(first(&size, &executor), name + ", first phase");
    if (size > 0) {
        ok(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST), name + ", workspace");
    }
    ok(second(workspace, size, executor, stream), name + ", second phase");
    ok(aclrtSynchronizeStream(stream), name + ", stream");
    if (workspace != nullptr) {
        ok(aclrtFree(workspace), name + ", workspace");
    }
}
