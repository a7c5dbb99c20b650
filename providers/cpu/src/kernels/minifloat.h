// Floats of eight bits and fewer. Every format is its exponent and mantissa widths, its bias and its special codes.
// float8e4m3fn, e5m2 and their "fnuz" kin: https://arxiv.org/abs/2209.05433, https://onnx.ai/onnx/technical/float8.html
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/cast.h"

namespace opweave {
namespace OPWEAVE_ISA {

// MaxCode: the largest finite magnitude; Overflow: the code past it without saturation; Nan: without the sign bit.
template <int E, int M, int Bias, int MaxCode, int Overflow, int Nan, bool Unsigned0> struct Minifloat {
    static constexpr int kSign = 1 << (E + M);
    static constexpr bool kOneZero = Unsigned0;  // no negative zero: its code is the NaN

    static float decode(uint8_t code) {
        int magnitude = code & (kSign - 1), exponent = magnitude >> M, mantissa = magnitude & ((1 << M) - 1);
        if (kOneZero && code == kSign) return std::numeric_limits<float>::quiet_NaN();
        float value = exponent ? std::ldexp(static_cast<float>(mantissa + (1 << M)), exponent - Bias - M)
                               : std::ldexp(static_cast<float>(mantissa), 1 - Bias - M);
        if (magnitude > MaxCode) value = E == 5 && mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
        return code & kSign ? -value : value;
    }
    static uint8_t encode(float x, bool saturate) {
        uint32_t bits;
        std::memcpy(&bits, &x, 4);
        int sign = bits >> 31 ? kSign : 0;
        if (x != x) return static_cast<uint8_t>(kOneZero ? kSign : sign | Nan);
        int code = magnitude(bits & 0x7fffffffu);
        if (code > MaxCode) code = saturate ? MaxCode : Overflow;
        if (kOneZero && code == 0) return 0;
        return static_cast<uint8_t>(code == kSign ? kSign : sign | code);
    }

  private:
    static int magnitude(uint32_t bits) {  // rounded to nearest even; may exceed MaxCode
        if (bits >= 0x7f800000u) return 1 << 20;
        if (bits >= static_cast<uint32_t>(128 - Bias) << 23) {
            uint32_t rounded = bits + (1u << (22 - M)) - 1 + ((bits >> (23 - M)) & 1);
            return static_cast<int>(rounded >> (23 - M)) - ((127 - Bias) << M);
        }
        float a;
        std::memcpy(&a, &bits, 4);
        a = a * std::ldexp(1.0f, Bias - 1 + M) + 8388608.0f;  // denormal: the sum rounds to an integer
        return static_cast<int>(a - 8388608.0f);
    }
};

using F8E4M3FN = Minifloat<4, 3, 7, 0x7e, 0x7f, 0x7f, false>;
using F8E4M3FNUZ = Minifloat<4, 3, 8, 0x7f, 0x80, 0x80, true>;
using F8E5M2 = Minifloat<5, 2, 15, 0x7b, 0x7c, 0x7f, false>;
using F8E5M2FNUZ = Minifloat<5, 2, 16, 0x7f, 0x80, 0x80, true>;
struct F4E2M1 : Minifloat<2, 1, 1, 7, 7, 0, false> {  // neither infinity nor NaN
    static float decode(uint8_t code) { return Minifloat::decode(code & 15); }
    static uint8_t encode(float x, bool) { return x != x ? kSign : Minifloat::encode(x, true); }
};

// A power of two, or NaN. https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf
struct F8E8M0 {
    static float decode(uint8_t code) {
        return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, code - 127);
    }
    static uint8_t encode(float x, CastRules rules) {
        uint32_t bits;
        std::memcpy(&bits, &x, 4);
        uint32_t exponent = bits >> 23 & 255, fraction = bits & 0x7fffffu;
        if (exponent == 255) return 255;
        bool up = rules.round == CastRules::Round::Up ? fraction > 0
                : rules.round == CastRules::Round::Nearest && (fraction > 0x400000u || (fraction == 0x400000u && exponent > 0));
        return static_cast<uint8_t>(exponent + (up && !(rules.saturate && exponent == 254)));
    }
};

}  // namespace OPWEAVE_ISA
}  // namespace opweave
