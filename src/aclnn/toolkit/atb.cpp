/* The part of Ascend Transformer Boost (ATB) that torch_npu loads. Three of its operations call aclnn functions, which
 * need no workspace here; others cannot be created. Classes declare the virtual functions that torch_npu calls, and
 * those before them. */

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "aclnnop/aclnn_addmm.h"
#include "aclnnop/aclnn_rotary_position_embedding.h"
#include "aclnnop/aclnn_scatter_pa_kv_cache.h"

namespace atb {

typedef int32_t Status;
const Status NO_ERROR = 0, ERROR_INVALID_PARAM = 1, ERROR_INVALID_IN_TENSOR_NUM = 5;

template <typename T> struct SVector {
    size_t capacity, size;
    T stored[65];
    T *heap;
    const T &operator[](size_t place) const { return heap == nullptr ? stored[place] : heap[place]; }
};

struct TensorDesc {
    aclDataType dtype;
    aclFormat format;
    int64_t dims[8];
    uint64_t dimNum;
};

struct Tensor {
    TensorDesc desc;
    void *deviceData;
    void *hostData;
    uint64_t dataSize;
};

struct VariantPack {
    SVector<Tensor> inTensors;
    SVector<Tensor> outTensors;
};

class Context {
public:
    virtual ~Context() = default;
    virtual Status SetExecuteStream(aclrtStream stream)
    {
        current = stream;
        return NO_ERROR;
    }
    virtual aclrtStream GetExecuteStream() const { return current; }

private:
    aclrtStream current = nullptr;
};

class Operation {
public:
    virtual ~Operation() = default;
    virtual std::string GetName() const = 0;
    virtual Status InferShape(const SVector<TensorDesc> &inputs, SVector<TensorDesc> &outputs) const = 0;
    virtual uint32_t GetInputNum() const = 0;
    virtual uint32_t GetOutputNum() const = 0;
    virtual Status Setup(const VariantPack &tensors, uint64_t &workspaceSize, Context *context) = 0;
    virtual Status Execute(const VariantPack &tensors, uint8_t *workspace, uint64_t size, Context *context) = 0;
};

namespace infer {

struct LinearParam {
    bool transposeA, transposeB, hasBias;
    aclDataType outDataType;
    bool enAccum;
    uint8_t others[23];
};

struct RopeParam {
    int32_t rotaryCoeff;
    int32_t cosFormat;
    uint8_t reserved[8];
};

struct ReshapeAndCacheParam {
    enum CompressType : int { COMPRESS_TYPE_UNDEFINED = 0 } compressType;
    enum KvCacheCfg : int { K_CACHE_V_CACHE = 0, K_CACHE_V_BYPASS, K_CACHE_V_CACHE_NZ } kvCacheCfg;
    uint8_t reserved[16];
};

struct ElewiseParam;
struct GroupTopkParam;
struct PagedAttentionParam;
struct RmsNormParam;
struct SelfAttentionParam;

} // namespace infer

/* A contiguous tensor of aclnn, by default of the same shape, for the duration of a call. */
class Argument {
public:
    explicit Argument(const Tensor &tensor, bool transposed = false)
        : Argument(tensor, std::vector<int64_t>(tensor.desc.dims, tensor.desc.dims + tensor.desc.dimNum), transposed)
    {
    }
    Argument(const Tensor &tensor, std::vector<int64_t> shape, bool transposed = false)
    {
        std::vector<int64_t> strides(shape.size(), 1);
        for (size_t axis = shape.size(); axis-- > 1;) {
            strides[axis - 1] = strides[axis] * shape[axis];
        }
        if (transposed) {
            std::swap(shape[0], shape[1]);
            std::swap(strides[0], strides[1]);
        }
        handle = aclCreateTensor(shape.data(), shape.size(), tensor.desc.dtype, strides.data(), 0, tensor.desc.format,
                                 shape.data(), shape.size(), tensor.deviceData);
    }
    Argument(const Argument &) = delete;
    ~Argument() { aclDestroyTensor(handle); }
    operator aclTensor *() const { return handle; }

private:
    aclTensor *handle;
};

class Implemented : public Operation {
public:
    Status InferShape(const SVector<TensorDesc> &, SVector<TensorDesc> &) const override { return ERROR_INVALID_PARAM; }
    Status Setup(const VariantPack &tensors, uint64_t &workspaceSize, Context *) override
    {
        workspaceSize = 0;
        bool fits = tensors.inTensors.size == GetInputNum() && tensors.outTensors.size == GetOutputNum();
        return fits ? NO_ERROR : ERROR_INVALID_IN_TENSOR_NUM;
    }
};

/* Add a product of matrices to the third tensor. */
class Linear : public Implemented {
public:
    explicit Linear(const infer::LinearParam &param) : transposesA(param.transposeA), transposesB(param.transposeB) {}
    std::string GetName() const override { return "LinearOperation"; }
    uint32_t GetInputNum() const override { return 3; }
    uint32_t GetOutputNum() const override { return 1; }
    Status Execute(const VariantPack &tensors, uint8_t *, uint64_t, Context *context) override
    {
        const SVector<Tensor> &in = tensors.inTensors;
        Argument a(in[0], transposesA), b(in[1], transposesB), sum(in[2]);
        float value = 1;
        aclScalar *one = aclCreateScalar(&value, ACL_FLOAT);
        const int8_t keepsType = 0;
        uint64_t bytes = 0;
        aclOpExecutor *executor = nullptr;
        Status status = aclnnInplaceAddmmGetWorkspaceSize(sum, a, b, one, one, keepsType, &bytes, &executor);
        if (status == NO_ERROR) {
            status = aclnnInplaceAddmm(nullptr, bytes, executor, context->GetExecuteStream());
        }
        aclDestroyScalar(one);
        return status;
    }

private:
    bool transposesA, transposesB;
};

/* Rotate the heads of query and key, [tokens, heads * size], by cos and sin, [tokens, size]. */
class Rope : public Implemented {
public:
    explicit Rope(const infer::RopeParam &param) : coefficient(param.rotaryCoeff) {}
    std::string GetName() const override { return "RopeOperation"; }
    uint32_t GetInputNum() const override { return 5; }
    uint32_t GetOutputNum() const override { return 2; }
    Status Execute(const VariantPack &tensors, uint8_t *, uint64_t, Context *context) override
    {
        const Tensor &cos = tensors.inTensors[2], &sin = tensors.inTensors[3];
        int64_t tokens = cos.desc.dims[0], size = cos.desc.dims[1];
        const int64_t half = 0, interleaved = 1, quarter = 2;
        int64_t mode = coefficient == 2 ? half : coefficient == 4 ? quarter : interleaved;
        for (size_t which = 0; which < 2; ++which) {
            const Tensor &x = tensors.inTensors[which];
            std::vector<int64_t> heads = {1, tokens, x.desc.dims[1] / size, size}, angles = {1, tokens, 1, size};
            uint64_t bytes = 0;
            aclOpExecutor *executor = nullptr;
            Status status = aclnnRotaryPositionEmbeddingGetWorkspaceSize(
                Argument(x, heads), Argument(cos, angles), Argument(sin, angles), mode,
                Argument(tensors.outTensors[which], heads), &bytes, &executor);
            if (status == NO_ERROR) {
                status = aclnnRotaryPositionEmbedding(nullptr, bytes, executor, context->GetExecuteStream());
            }
            if (status != NO_ERROR) {
                return status;
            }
        }
        return NO_ERROR;
    }

private:
    int32_t coefficient;
};

/* Write keys and values, [tokens, heads, size], to the slots of their caches. */
class ReshapeAndCache : public Implemented {
public:
    explicit ReshapeAndCache(const infer::ReshapeAndCacheParam &param)
        : mode(param.kvCacheCfg == param.K_CACHE_V_CACHE_NZ ? "PA_NZ" : "Norm")
    {
    }
    std::string GetName() const override { return "ReshapeAndCacheOperation"; }
    uint32_t GetInputNum() const override { return 5; }
    uint32_t GetOutputNum() const override { return 2; }
    Status Execute(const VariantPack &tensors, uint8_t *, uint64_t, Context *context) override
    {
        const SVector<Tensor> &in = tensors.inTensors;
        Argument key(in[0]), value(in[1]), keys(in[2]), values(in[3]), slots(in[4]);
        uint64_t bytes = 0;
        aclOpExecutor *executor = nullptr;
        Status status = aclnnScatterPaKvCacheGetWorkspaceSize(key, keys, slots, value, values, nullptr, nullptr, nullptr,
                                                              const_cast<char *>(mode), nullptr, nullptr, nullptr,
                                                              &bytes, &executor);
        return status != NO_ERROR ? status : aclnnScatterPaKvCache(nullptr, bytes, executor, context->GetExecuteStream());
    }

private:
    const char *mode;
};

template <typename Param> Status CreateOperation(const Param &param, Operation **operation);

static Status rejected(const char *param, Operation **operation)
{
    std::fprintf(stderr,
                 "atb::CreateOperation: expected a LinearParam with enAccum, a ReshapeAndCacheParam for both caches "
                 "without compression, or a RopeParam, got %s\n",
                 param);
    *operation = nullptr;
    return ERROR_INVALID_PARAM;
}

template <> Status CreateOperation(const infer::LinearParam &param, Operation **operation)
{
    if (!param.enAccum) {
        return rejected("another LinearParam", operation);
    }
    *operation = new Linear(param);
    return NO_ERROR;
}

template <> Status CreateOperation(const infer::RopeParam &param, Operation **operation)
{
    *operation = new Rope(param);
    return NO_ERROR;
}

template <> Status CreateOperation(const infer::ReshapeAndCacheParam &param, Operation **operation)
{
    if (param.compressType != param.COMPRESS_TYPE_UNDEFINED || param.kvCacheCfg == param.K_CACHE_V_BYPASS) {
        return rejected("another ReshapeAndCacheParam", operation);
    }
    *operation = new ReshapeAndCache(param);
    return NO_ERROR;
}

#define NOT_IMPLEMENTED(PARAM)                                                          \
    template <> Status CreateOperation(const infer::PARAM &, Operation **operation)     \
    {                                                                                   \
        return rejected(#PARAM, operation);                                             \
    }
NOT_IMPLEMENTED(ElewiseParam)
NOT_IMPLEMENTED(GroupTopkParam)
NOT_IMPLEMENTED(PagedAttentionParam)
NOT_IMPLEMENTED(RmsNormParam)
NOT_IMPLEMENTED(SelfAttentionParam)

Status DestroyOperation(Operation *operation)
{
    delete operation;
    return NO_ERROR;
}

Status CreateContext(Context **context)
{
    *context = new Context;
    return NO_ERROR;
}

Status DestroyContext(Context *context)
{
    delete context;
    return NO_ERROR;
}

class Utils {
public:
    static uint64_t GetTensorSize(const Tensor &tensor);
};

uint64_t Utils::GetTensorSize(const Tensor &tensor)
{
    uint64_t bytes = aclDataTypeSize(tensor.desc.dtype);
    for (uint64_t axis = 0; axis < tensor.desc.dimNum; ++axis) {
        bytes *= tensor.desc.dims[axis];
    }
    return bytes;
}

} // namespace atb
