#ifndef ACLNN_TOOLKIT_FP16_T_H
#define ACLNN_TOOLKIT_FP16_T_H

/* op::fp16_t: a float16, for C++ programs that fill and read tensors of that type.

   A uint16_t is taken as the bits. Any other number is rounded to nearest, ties to even, and saturates at 65504
   and -65504. Arithmetic is in float, rounded once. */

#ifdef __cplusplus

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace op {

struct fp16_t {
    uint16_t val;

    fp16_t() : val(0) {}
    fp16_t(const fp16_t &) = default;
    fp16_t(const uint16_t &bits) : val(bits) {}

    template <typename T, typename = typename std::enable_if<std::is_arithmetic<T>::value>::type>
    fp16_t(const T &number) : val(rounded(static_cast<double>(number))) {}

    fp16_t &operator=(const fp16_t &) = default;

    template <typename T, typename = typename std::enable_if<std::is_arithmetic<T>::value>::type>
    fp16_t &operator=(const T &number)
    {
        val = rounded(static_cast<double>(number));
        return *this;
    }

    operator float() const
    {
        const uint32_t sign = static_cast<uint32_t>(val & 0x8000U) << 16;
        const uint32_t exponent = (val >> 10) & 0x1FU, fraction = val & 0x3FFU;
        if (exponent == 0) {
            const float magnitude = static_cast<float>(fraction) / 16777216.0F;
            return sign ? -magnitude : magnitude;
        }
        const uint32_t wide = exponent == 0x1FU ? 0xFFU : exponent + 112U;
        const uint32_t bits = sign | (wide << 23) | (fraction << 13);
        float result;
        (void)std::memcpy(&result, &bits, sizeof result);
        return result;
    }

    float toFloat() const { return static_cast<float>(*this); }

    fp16_t operator-() const { return fp16_t(static_cast<uint16_t>(val ^ 0x8000U)); }
    fp16_t &operator+=(const fp16_t &other) { return *this = static_cast<float>(*this) + static_cast<float>(other); }
    fp16_t &operator-=(const fp16_t &other) { return *this = static_cast<float>(*this) - static_cast<float>(other); }
    fp16_t &operator*=(const fp16_t &other) { return *this = static_cast<float>(*this) * static_cast<float>(other); }
    fp16_t &operator/=(const fp16_t &other) { return *this = static_cast<float>(*this) / static_cast<float>(other); }

private:
    static uint16_t rounded(double number)
    {
        uint64_t bits;
        (void)std::memcpy(&bits, &number, sizeof bits);
        const uint16_t sign = static_cast<uint16_t>((bits >> 48) & 0x8000U);
        const uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
        const int exponent = static_cast<int>((bits >> 52) & 0x7FFU) - 1023;
        if (exponent == 1024) {
            return static_cast<uint16_t>(sign | (fraction ? 0x7E00U : 0x7C00U));
        }
        if (exponent > 15) {
            return static_cast<uint16_t>(sign | 0x7BFFU);
        }
        if (exponent < -25) {
            return sign;
        }
        const bool is_subnormal = exponent < -14;
        const int dropped = is_subnormal ? 28 - exponent : 42;
        const uint64_t all = fraction | (UINT64_C(1) << 52);
        const uint64_t rest = all & ((UINT64_C(1) << dropped) - 1), half = UINT64_C(1) << (dropped - 1);
        uint64_t kept = all >> dropped;
        kept += rest > half || (rest == half && (kept & 1U)) ? 1U : 0U;
        const uint64_t magnitude = is_subnormal ? kept : kept + (static_cast<uint64_t>(exponent + 14) << 10);
        return static_cast<uint16_t>(sign | (magnitude < 0x7C00U ? magnitude : 0x7BFFU));
    }
};

} // namespace op

#endif
#endif
