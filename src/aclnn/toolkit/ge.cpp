/* The part of CANN's graph engine that MindSpore needs to load and to call operators by type: operators that store
 * attributes, and tensor descriptions. There are no graphs. Strings use the old ABI, as in CANN's builds. Inline member
 * functions are unused here but must be emitted, for which compilers have options. */

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

namespace ge {

enum Format : int { FORMAT_ND = 2 };
enum DataType : int { DT_FLOAT = 0 };
typedef uint32_t graphStatus;
const graphStatus SUCCESS = 0, FAILED = 0xFFFFFFFF;

class Graph;
class Operator;

/* Clients register the texts of error codes themselves. */
class StatusFactory {
public:
    static StatusFactory *Instance()
    {
        static StatusFactory factory;
        return &factory;
    }

private:
    std::map<uint32_t, std::string> texts;
};

class AscendString {
public:
    AscendString() = default;
    AscendString(const char *text) : text(text == nullptr ? nullptr : std::make_shared<std::string>(text)) {}
    const char *GetString() const { return text == nullptr ? "" : text->c_str(); }

private:
    std::shared_ptr<std::string> text;
};

class Shape {
public:
    Shape() : dims(std::make_shared<std::vector<int64_t>>()) {}
    explicit Shape(const std::vector<int64_t> &dims) : dims(std::make_shared<std::vector<int64_t>>(dims)) {}
    size_t GetDimNum() const { return dims->size(); }
    int64_t GetDim(size_t place) const { return place < dims->size() ? (*dims)[place] : 0; }
    graphStatus SetDim(size_t place, int64_t value)
    {
        if (place >= dims->size()) {
            return FAILED;
        }
        (*dims)[place] = value;
        return SUCCESS;
    }
    std::vector<int64_t> GetDims() const { return *dims; }

private:
    std::shared_ptr<std::vector<int64_t>> dims;
};

class TensorDesc {
public:
    TensorDesc() : TensorDesc(Shape(), FORMAT_ND, DT_FLOAT) {}
    explicit TensorDesc(Shape shape, Format format, DataType type)
        : parts(std::make_shared<Parts>(Parts{shape, format, type}))
    {
    }
    TensorDesc(const TensorDesc &other) : parts(std::make_shared<Parts>(*other.parts)) {}
    TensorDesc(TensorDesc &&other) : parts(std::move(other.parts)) {}
    Shape GetShape() const { return Shape(parts->shape.GetDims()); }
    void SetShape(const Shape &shape) { parts->shape = Shape(shape.GetDims()); }
    Format GetFormat() const { return parts->format; }
    void SetFormat(Format format) { parts->format = format; }
    DataType GetDataType() const { return parts->type; }
    void SetDataType(DataType type) { parts->type = type; }
    /* Ignored: nothing reads these. */
    void SetOriginShape(const Shape &) {}
    void SetOriginFormat(Format) {}
    void SetRealDimCnt(int64_t) {}

private:
    struct Parts {
        Shape shape;
        Format format;
        DataType type;
    };
    std::shared_ptr<Parts> parts;
};

class Tensor {
public:
    Tensor() : Tensor(TensorDesc()) {}
    explicit Tensor(const TensorDesc &desc) : parts(std::make_shared<Parts>(Parts{desc, std::string()})) {}
    Tensor(const TensorDesc &desc, const uint8_t *data, size_t size) : Tensor(desc) { SetData(data, size); }
    TensorDesc GetTensorDesc() const { return parts->desc; }
    uint8_t *GetData() { return reinterpret_cast<uint8_t *>(&parts->data[0]); }
    size_t GetSize() const { return parts->data.size(); }
    graphStatus SetData(const uint8_t *data, size_t size)
    {
        return SetData(std::string(reinterpret_cast<const char *>(data), size));
    }
    graphStatus SetData(uint8_t *data, size_t size, const std::function<void(uint8_t *)> &release)
    {
        SetData(data, size);
        release(data);
        return SUCCESS;
    }
    graphStatus SetData(const std::string &data)
    {
        parts->data = data;
        return SUCCESS;
    }
    graphStatus SetData(const std::vector<std::string> &) { return FAILED; }

private:
    struct Parts {
        TensorDesc desc;
        std::string data;
    };
    std::shared_ptr<Parts> parts;
};

class OperatorImpl {
public:
    std::string name, type;
    std::map<std::pair<std::string, std::type_index>, std::shared_ptr<void>> attributes;
};

class Operator {
public:
    explicit Operator(const std::string &type) : Operator(std::string(), type) {}
    Operator(const std::string &name, const std::string &type) : parts(std::make_shared<OperatorImpl>())
    {
        parts->name = name;
        parts->type = type;
    }
    Operator(const AscendString &name, const AscendString &type)
        : Operator(std::string(name.GetString()), std::string(type.GetString()))
    {
    }
    virtual ~Operator() = default;

    std::string GetName() const { return parts->name; }
    graphStatus GetName(AscendString &name) const
    {
        name = AscendString(parts->name.c_str());
        return SUCCESS;
    }
    std::string GetOpType() const { return parts->type; }
    graphStatus GetOpType(AscendString &type) const
    {
        type = AscendString(parts->type.c_str());
        return SUCCESS;
    }

#define ATTRIBUTE(NAME, TYPE, GIVEN)                                                                                   \
    Operator &SetAttr(NAME name, GIVEN value)                                                                          \
    {                                                                                                                  \
        parts->attributes[key<TYPE>(name)] = std::make_shared<TYPE>(value);                                            \
        return *this;                                                                                                  \
    }                                                                                                                  \
    graphStatus GetAttr(NAME name, TYPE &value) const                                                                  \
    {                                                                                                                  \
        const auto found = parts->attributes.find(key<TYPE>(name));                                                    \
        if (found == parts->attributes.end()) {                                                                        \
            return FAILED;                                                                                             \
        }                                                                                                              \
        value = *static_cast<const TYPE *>(found->second.get());                                                       \
        return SUCCESS;                                                                                                \
    }
    ATTRIBUTE(const char *, bool, bool)
    ATTRIBUTE(const char *, float, float)
    ATTRIBUTE(const char *, int32_t, int32_t)
    ATTRIBUTE(const char *, int64_t, int64_t)
    ATTRIBUTE(const char *, DataType, const DataType &)
    ATTRIBUTE(const char *, Tensor, const Tensor &)
    ATTRIBUTE(const char *, std::vector<float>, const std::vector<float> &)
    ATTRIBUTE(const char *, std::vector<int32_t>, const std::vector<int32_t> &)
    ATTRIBUTE(const char *, std::vector<int64_t>, const std::vector<int64_t> &)
    ATTRIBUTE(const char *, std::vector<DataType>, const std::vector<DataType> &)
    ATTRIBUTE(const char *, std::vector<std::vector<int64_t>>, const std::vector<std::vector<int64_t>> &)
    ATTRIBUTE(const std::string &, bool, bool)
    ATTRIBUTE(const std::string &, float, float)
    ATTRIBUTE(const std::string &, int32_t, int32_t)
    ATTRIBUTE(const std::string &, int64_t, int64_t)
    ATTRIBUTE(const std::string &, std::string, const std::string &)
    ATTRIBUTE(const std::string &, std::vector<bool>, const std::vector<bool> &)
    ATTRIBUTE(const std::string &, std::vector<float>, const std::vector<float> &)
    ATTRIBUTE(const std::string &, std::vector<int32_t>, const std::vector<int32_t> &)
    ATTRIBUTE(const std::string &, std::vector<int64_t>, const std::vector<int64_t> &)
    ATTRIBUTE(const std::string &, std::vector<std::string>, const std::vector<std::string> &)

    /* Registration of an operator's parts and of graph edges: ignored. */
    void AttrRegister(const char *, bool) {}
    void AttrRegister(const char *, float) {}
    void AttrRegister(const char *, int64_t) {}
    void AttrRegister(const char *, const AscendString &) {}
    void AttrRegister(const char *, const DataType &) {}
    void AttrRegister(const char *, const std::vector<float> &) {}
    void AttrRegister(const char *, const std::vector<int64_t> &) {}
    void AttrRegister(const char *, const std::vector<AscendString> &) {}
    void RequiredAttrRegister(const std::string &) {}
    void RequiredAttrWithTypeRegister(const char *, const char *) {}
    void InputRegister(const char *, const char *) {}
    void InputRegister(const std::string &) {}
    void OptionalInputRegister(const char *, const char *) {}
    void OptionalInputRegister(const std::string &) {}
    void DynamicInputRegister(const char *, unsigned int, const char *, bool) {}
    void DynamicInputRegisterByIndex(const char *, unsigned int, size_t) {}
    void OutputRegister(const char *, const char *) {}
    void OutputRegister(const std::string &) {}
    void DynamicOutputRegister(const char *, unsigned int, const char *, bool) {}
    int GetDynamicOutputNum(const std::string &) const { return 0; }
    void InferFuncRegister(const std::function<graphStatus(Operator &)> &) {}
    void SubgraphCountRegister(const char *, uint32_t) {}
    void SetSubgraphBuilder(const char *, uint32_t, const std::function<Graph()> &) {}
    Operator &SetInput(const char *, const Operator &) { return *this; }
    Operator &SetInput(const char *, uint32_t, const Operator &) { return *this; }
    Operator &SetInput(const char *, uint32_t, const Operator &, const char *) { return *this; }
    Operator &SetInput(const std::string &, const Operator &) { return *this; }
    Operator &SetInput(const std::string &, const Operator &, const std::string &) { return *this; }
    graphStatus UpdateInputDesc(const char *, const TensorDesc &) { return FAILED; }
    graphStatus UpdateInputDesc(const std::string &, const TensorDesc &) { return FAILED; }
    graphStatus UpdateOutputDesc(const char *, const TensorDesc &) { return FAILED; }
    graphStatus UpdateOutputDesc(const std::string &, const TensorDesc &) { return FAILED; }
    graphStatus UpdateDynamicOutputDesc(const char *, uint32_t, const TensorDesc &) { return FAILED; }

private:
    template <typename Value>
    static std::pair<std::string, std::type_index> key(const std::string &name)
    {
        return {name, std::type_index(typeid(Value))};
    }
    std::shared_ptr<OperatorImpl> parts;
};

/* Every type is reported to exist: calling an unknown one fails with its name. */
class OperatorFactory {
public:
    static bool IsExistOp(const char *) { return true; }
    static bool IsExistOp(const std::string &) { return true; }
    static Operator CreateOperator(const char *name, const char *type)
    {
        return CreateOperator(std::string(name), std::string(type));
    }
    static Operator CreateOperator(const std::string &name, const std::string &type) { return Operator(name, type); }
};

class OperatorCreatorRegister {
public:
    OperatorCreatorRegister(const char *, const std::function<Operator(const AscendString &)> &) {}
    OperatorCreatorRegister(const std::string &, const std::function<Operator(const std::string &)> &) {}
};

class InferShapeFuncRegister {
public:
    InferShapeFuncRegister(const std::string &, const std::function<graphStatus(Operator &)> &) {}
};

graphStatus GEInitialize(const std::map<std::string, std::string> &) { return SUCCESS; }

}
