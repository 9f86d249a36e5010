// Eight threads make their first calls at the same moment, each another one (first_calls SHIFT deals them out anew).
#include "device.hpp"

#include <atomic>
#include <functional>
#include <thread>

#include "aclnnop/aclnn_gelu.h"
#include "aclnnop/aclnn_hardswish_backward.h"
#include "aclnnop/aclnn_layer_norm.h"
#include "aclnnop/aclnn_layer_norm_backward.h"

namespace {

constexpr size_t kRows = 2, kColumns = 4;
const Layout kMatrix{{kRows, kColumns}, {kColumns, 1}}, kColumn{{kRows, 1}, {1, 1}};

std::atomic<const char*> soc_name{nullptr};

void ask_for_the_product()
{
    const char* name = aclrtGetSocName();
    expect(name != nullptr && std::strncmp(name, "Ascend", 6) == 0, "aclrtGetSocName");
    const char* before = soc_name.exchange(name);
    expect(before == nullptr || before == name, "aclrtGetSocName gives one text");
}

void initialise()
{
    const int status = aclInit(nullptr);
    expect(status == 0 || status == ACL_ERROR_REPEAT_INITIALIZE, "aclInit");
}

void count_devices()
{
    uint32_t devices = 0;
    ok(aclrtGetDeviceCount(&devices), "aclrtGetDeviceCount");
    expect(devices == 1, "one device");
}

void be_rejected()
{
    expect(aclrtFree(nullptr) == ACL_ERROR_INVALID_PARAM, "aclrtFree of null");
    const char* text = aclGetRecentErrMsg();
    expect(text != nullptr && std::strncmp(text, "aclrtFree", 9) == 0, "why");
}

void allocate(size_t nbytes)
{
    void* address = nullptr;
    ok(aclrtSetDevice(0), "aclrtSetDevice");
    ok(aclrtMalloc(&address, nbytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    std::vector<unsigned char> data(nbytes, 7), back(nbytes);
    ok(aclrtMemcpy(address, nbytes, data.data(), nbytes, ACL_MEMCPY_HOST_TO_DEVICE), "in");
    ok(aclrtMemcpy(back.data(), nbytes, address, nbytes, ACL_MEMCPY_DEVICE_TO_HOST), "out");
    expect(back == data, "what was copied");
    ok(aclrtFree(address), "aclrtFree");
    ok(aclrtResetDevice(0), "aclrtResetDevice");
}

void on_a_stream(const std::function<void(aclrtStream)>& work)
{
    aclrtContext context = nullptr;
    aclrtStream stream = nullptr;
    ok(aclrtCreateContext(&context, 0), "aclrtCreateContext");
    ok(aclrtCreateStream(&stream), "aclrtCreateStream");
    work(stream);
    ok(aclrtDestroyStream(stream), "aclrtDestroyStream");
    ok(aclrtDestroyContext(context), "aclrtDestroyContext");
}

void compare(const Tensor& tensor, const std::vector<double>& wanted, const std::string& name)
{
    const std::vector<double> got = tensor.fetch(name);
    for (size_t i = 0; i < wanted.size(); i++) {
        expect(std::fabs(got[i] - wanted[i]) < 1e-3, name + ": " + std::to_string(got[i]));
    }
}

void gate()
{
    on_a_stream([](aclrtStream stream) {
        const Tensor dy(ACL_FLOAT16, kMatrix, {1, 2, 3, 4, 5, 6, 7, 8}), x(ACL_FLOAT16, kMatrix, std::vector<double>(8, 4));
        const Tensor dx(ACL_FLOAT16, kMatrix);
        compute("aclnnHardswishBackward", stream, [&](uint64_t* size, aclOpExecutor** executor) {
            return aclnnHardswishBackwardGetWorkspaceSize(dy.handle(), x.handle(), dx.handle(), size, executor);
        }, aclnnHardswishBackward);
        compare(dx, dy.given(), "dx");
    });
}

void activate()
{
    on_a_stream([](aclrtStream stream) {
        const Tensor x(ACL_FLOAT, kMatrix, {0, 1, 2, 3, -1, -2, -3, 0}), out(ACL_FLOAT, kMatrix);
        compute("aclnnGelu", stream, [&](uint64_t* size, aclOpExecutor** executor) {
            return aclnnGeluGetWorkspaceSize(x.handle(), out.handle(), size, executor);
        }, aclnnGelu);
        std::vector<double> wanted;
        for (const double value : x.given()) {
            wanted.push_back(value / 2 * std::erfc(-value / std::sqrt(2)));
        }
        compare(out, wanted, "aclnnGelu");
    });
}

const int64_t kNormalized[] = {kColumns};

void normalise()
{
    on_a_stream([](aclrtStream stream) {
        const Tensor x(ACL_FLOAT, kMatrix, {1, 1, 3, 3, -5, -5, 5, 5}), out(ACL_FLOAT, kMatrix);
        aclIntArray* shape = aclCreateIntArray(kNormalized, 1);
        compute("aclnnLayerNorm", stream, [&](uint64_t* size, aclOpExecutor** executor) {
            return aclnnLayerNormGetWorkspaceSize(x.handle(), shape, nullptr, nullptr, 0.0, out.handle(), nullptr,
                                                  nullptr, size, executor);
        }, aclnnLayerNorm);
        compare(out, {-1, -1, 1, 1, -1, -1, 1, 1}, "aclnnLayerNorm");
        ok(aclDestroyIntArray(shape), "aclDestroyIntArray");
    });
}

void differentiate()
{
    on_a_stream([](aclrtStream stream) {
        const Tensor dy(ACL_FLOAT, kMatrix, std::vector<double>(8, 2)), dx(ACL_FLOAT, kMatrix);
        const Tensor x(ACL_FLOAT, kMatrix, {1, 1, 3, 3, -5, -5, 5, 5});
        const Tensor mean(ACL_FLOAT, kColumn, {2, 0}), rstd(ACL_FLOAT, kColumn, {1, 0.2});
        const bool wanted[] = {true, false, false};
        aclIntArray* shape = aclCreateIntArray(kNormalized, 1);
        aclBoolArray* mask = aclCreateBoolArray(wanted, 3);
        compute("aclnnLayerNormBackward", stream, [&](uint64_t* size, aclOpExecutor** executor) {
            return aclnnLayerNormBackwardGetWorkspaceSize(dy.handle(), x.handle(), shape, mean.handle(), rstd.handle(),
                                                          nullptr, nullptr, mask, dx.handle(), nullptr, nullptr, size,
                                                          executor);
        }, aclnnLayerNormBackward);
        compare(dx, std::vector<double>(8, 0), "aclnnLayerNormBackward");
        ok(aclDestroyBoolArray(mask), "aclDestroyBoolArray");
        ok(aclDestroyIntArray(shape), "aclDestroyIntArray");
    });
}

}  // namespace

int main(int argc, char** argv)
{
    const std::vector<std::function<void()>> calls{
        normalise, differentiate, activate, gate, ask_for_the_product, ask_for_the_product, be_rejected, count_devices,
        initialise, [] { allocate(64); }, [] { allocate(size_t{3} << 20); },
    };
    const size_t shift = argc > 1 ? static_cast<size_t>(std::atoi(argv[1])) : 0;
    constexpr size_t kThreads = 8;
    std::atomic<size_t> ready{0};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; i++) {
        threads.emplace_back([&, i] {
            ready++;
            while (ready < kThreads) {
            }
            for (size_t turn = 0; turn < calls.size(); turn++) {
                calls[(i + shift + turn) % calls.size()]();
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    std::printf("ok\n");
    return 0;
}
