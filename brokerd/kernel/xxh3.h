/* XXH3-64 without a seed, for inputs of one byte or more, as xxhash.h of Yann Collet defines it. The hash is his design,
 * and so are the constants (https://github.com/Cyan4973/xxHash, BSD 2-clause). For long inputs python-xxhash is faster;
 * for short ones, this one is, because it is called without the interpreter. Little-endian only, as the kernel is. */
#ifndef BROKERD_XXH3_H
#define BROKERD_XXH3_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { XXH3_SECRET_BYTES = 192, XXH3_STRIPE = 64, XXH3_STRIPES_IN_BLOCK = (192 - 64) / 8 };

static const uint64_t XXH3_P32_1 = 0x9E3779B1U, XXH3_P32_2 = 0x85EBCA77U, XXH3_P32_3 = 0xC2B2AE3DU;
static const uint64_t XXH3_P64_1 = 0x9E3779B185EBCA87ULL, XXH3_P64_2 = 0xC2B2AE3D27D4EB4FULL;
static const uint64_t XXH3_P64_3 = 0x165667B19E3779F9ULL, XXH3_P64_4 = 0x85EBCA77C2B2AE63ULL;
static const uint64_t XXH3_P64_5 = 0x27D4EB2F165667C5ULL;

static const uint8_t XXH3_SECRET[XXH3_SECRET_BYTES] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static inline uint64_t xxh3_read(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

static inline uint64_t xxh3_fold(uint64_t left, uint64_t right) {
    const __uint128_t product = (__uint128_t)left * right;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t xxh3_avalanche(uint64_t hash) {
    hash ^= hash >> 37;
    hash *= 0x165667919E3779F9ULL;
    return hash ^ (hash >> 32);
}

static inline uint64_t xxh3_mix(const uint8_t *input, const uint8_t *secret) {
    return xxh3_fold(xxh3_read(input) ^ xxh3_read(secret), xxh3_read(input + 8) ^ xxh3_read(secret + 8));
}

static inline uint64_t xxh3_to_3(const uint8_t *input, size_t length) {
    const uint64_t key = (uint32_t)xxh3_read(XXH3_SECRET) ^ (uint32_t)xxh3_read(XXH3_SECRET + 4);
    uint64_t hash = key ^ ((uint32_t)input[0] << 16 | (uint32_t)input[length >> 1] << 24 | input[length - 1] |
                           (uint32_t)length << 8);
    hash ^= hash >> 33;
    hash *= XXH3_P64_2;
    hash ^= hash >> 29;
    hash *= XXH3_P64_3;
    return hash ^ (hash >> 32);
}

static inline uint64_t xxh3_to_8(const uint8_t *input, size_t length) {
    uint32_t first, last;
    memcpy(&first, input, 4);
    memcpy(&last, input + length - 4, 4);
    uint64_t hash = (last + ((uint64_t)first << 32)) ^ xxh3_read(XXH3_SECRET + 8) ^ xxh3_read(XXH3_SECRET + 16);
    hash ^= (hash << 49 | hash >> 15) ^ (hash << 24 | hash >> 40);
    hash *= 0x9FB21C651E98DF25ULL;
    hash ^= (hash >> 35) + length;
    hash *= 0x9FB21C651E98DF25ULL;
    return hash ^ (hash >> 28);
}

static inline uint64_t xxh3_to_16(const uint8_t *input, size_t length) {
    const uint64_t low = xxh3_read(input) ^ xxh3_read(XXH3_SECRET + 24) ^ xxh3_read(XXH3_SECRET + 32);
    const uint64_t high = xxh3_read(input + length - 8) ^ xxh3_read(XXH3_SECRET + 40) ^ xxh3_read(XXH3_SECRET + 48);
    return xxh3_avalanche(length + __builtin_bswap64(low) + high + xxh3_fold(low, high));
}

static inline uint64_t xxh3_to_128(const uint8_t *input, size_t length) {
    uint64_t acc = length * XXH3_P64_1;
    for (size_t i = (length - 1) / 32 + 1; i-- > 0;) {
        acc += xxh3_mix(input + 16 * i, XXH3_SECRET + 32 * i);
        acc += xxh3_mix(input + length - 16 * (i + 1), XXH3_SECRET + 32 * i + 16);
    }
    return xxh3_avalanche(acc);
}

static inline uint64_t xxh3_to_240(const uint8_t *input, size_t length) {
    uint64_t acc = length * XXH3_P64_1;
    size_t i = 0;
    for (; i < 8; i++)
        acc += xxh3_mix(input + 16 * i, XXH3_SECRET + 16 * i);
    acc = xxh3_avalanche(acc);
    for (; i < length / 16; i++)
        acc += xxh3_mix(input + 16 * i, XXH3_SECRET + 16 * (i - 8) + 3);
    acc += xxh3_mix(input + length - 16, XXH3_SECRET + 136 - 17);
    return xxh3_avalanche(acc);
}

static inline void xxh3_stripe(uint64_t *restrict acc, const uint8_t *restrict input, const uint8_t *restrict secret) {
    uint64_t value[8], keyed[8];
    memcpy(value, input, sizeof value);
    memcpy(keyed, secret, sizeof keyed);
    for (int i = 0; i < 8; i++) {
        keyed[i] ^= value[i];
        acc[i ^ 1] += value[i];
    }
    for (int i = 0; i < 8; i++)
        acc[i] += (keyed[i] & 0xFFFFFFFF) * (keyed[i] >> 32);
}

static inline uint64_t xxh3_long(const uint8_t *input, size_t length) {
    uint64_t acc[8] = {XXH3_P32_3, XXH3_P64_1, XXH3_P64_2, XXH3_P64_3, XXH3_P64_4, XXH3_P32_2, XXH3_P64_5, XXH3_P32_1};
    const size_t stripes = (length - 1) / XXH3_STRIPE;
    uint64_t hash = length * XXH3_P64_1;
    for (size_t i = 0; i < stripes; i++) {
        const size_t in_block = i % XXH3_STRIPES_IN_BLOCK;
        xxh3_stripe(acc, input + i * XXH3_STRIPE, XXH3_SECRET + 8 * in_block);
        if (in_block == XXH3_STRIPES_IN_BLOCK - 1)
            for (int j = 0; j < 8; j++) {
                acc[j] ^= acc[j] >> 47;
                acc[j] ^= xxh3_read(XXH3_SECRET + XXH3_SECRET_BYTES - 64 + 8 * j);
                acc[j] *= XXH3_P32_1;
            }
    }
    xxh3_stripe(acc, input + length - XXH3_STRIPE, XXH3_SECRET + XXH3_SECRET_BYTES - 64 - 7);
    for (int i = 0; i < 4; i++) {
        const uint8_t *secret = XXH3_SECRET + 11 + 16 * i;
        hash += xxh3_fold(acc[2 * i] ^ xxh3_read(secret), acc[2 * i + 1] ^ xxh3_read(secret + 8));
    }
    return xxh3_avalanche(hash);
}

static inline uint64_t xxh3_64(const uint8_t *input, size_t length) {
    if (length > 240)
        return xxh3_long(input, length);
    if (length > 128)
        return xxh3_to_240(input, length);
    if (length > 16)
        return xxh3_to_128(input, length);
    return length > 8 ? xxh3_to_16(input, length) : length > 3 ? xxh3_to_8(input, length) : xxh3_to_3(input, length);
}

#endif
