// What samples of CANN include beside its own headers: numbers of 16 bits, and copies that know their room.

#include "aclnn/opdev/fp16_t.h"
#include "acl/acl.h"
#include "securec.h"

#include <cassert>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

static float of(uint16_t bits) { return static_cast<float>(op::fp16_t(bits)); }

int main()
{
    static_assert(sizeof(op::fp16_t) == 2, "two bytes");
    std::vector<op::fp16_t> ones(3, 1);
    assert(ones[2].val == 0x3C00);
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const uint16_t half = static_cast<uint16_t>(bits);
        const float number = of(half);
        if ((half & 0x7C00) == 0x7C00) {
            assert(half & 0x3FF ? std::isnan(number) : std::isinf(number));
            continue;
        }
        assert(number == aclFloat16ToFloat(half) || bits % 97);
        assert(op::fp16_t(number).val == half);
        const float next = of(static_cast<uint16_t>(half + 1));
        if ((half & 0x7FFF) < 0x7BFF) {
            assert(op::fp16_t((static_cast<double>(number) + next) / 2).val == half + (half & 1));
        }
    }
    assert(op::fp16_t(65520.0F).val == 0x7BFF && op::fp16_t(-1e30).val == 0xFBFF);
    assert(std::isinf(static_cast<float>(op::fp16_t(std::numeric_limits<float>::infinity()))));
    assert(op::fp16_t(1e-8).val == 0 && op::fp16_t(-1e-300).val == 0x8000);
    op::fp16_t sum = 1.5F;
    sum += op::fp16_t(2);
    sum = sum * 2;
    assert(sum == 7.0F && (-sum).toFloat() == -7.0F);

    char text[8];
    assert(strcpy_s(text, sizeof text, "seven c") == EOK && std::strcmp(text, "seven c") == 0);
    assert(strcpy_s(text, sizeof text, "eight ch") != EOK && text[0] == '\0');
    assert(strncpy_s(text, sizeof text, "eight ch", 3) == EOK && std::strcmp(text, "eig") == 0);
    assert(memcpy_s(text, sizeof text, "1234567", 8) == EOK && std::strcmp(text, "1234567") == 0);
    assert(memcpy_s(text, sizeof text, text + 1, 7) != EOK && text[0] == '\0');
    assert(memcpy_s(text, sizeof text, "123456789", 9) != EOK && memcpy_s(nullptr, 8, text, 1) != EOK);
    assert(memmove_s(text, 8, nullptr, 1) != EOK && memmove_s(text, 0, "a", 1) != EOK);
    assert(memset_s(text, sizeof text, 'x', sizeof text) == EOK && text[7] == 'x');
    assert(memset_s(text, sizeof text, 'x', sizeof text + 1) != EOK);
    std::puts("ok");
    return 0;
}
