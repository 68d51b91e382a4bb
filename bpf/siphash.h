/* SipHash-2-4 (Aumasson, Bernstein): a keyed hash whose results cannot be steered without the key. Programs
 * and daemon compute the same from this one file, little-endian word by word. */
#ifndef AGENTMON_BPF_SIPHASH_H
#define AGENTMON_BPF_SIPHASH_H

#include "event_abi.h"

#define AM_SIP_INLINE static inline __attribute__((always_inline))

struct am_sip {
  am_u64 v0, v1, v2, v3;
};

AM_SIP_INLINE am_u64 am_sip_rotate(am_u64 x, int bits) { return (x << bits) | (x >> (64 - bits)); }

AM_SIP_INLINE void am_sip_round(struct am_sip *s) {
  s->v0 += s->v1;
  s->v1 = am_sip_rotate(s->v1, 13) ^ s->v0;
  s->v0 = am_sip_rotate(s->v0, 32);
  s->v2 += s->v3;
  s->v3 = am_sip_rotate(s->v3, 16) ^ s->v2;
  s->v0 += s->v3;
  s->v3 = am_sip_rotate(s->v3, 21) ^ s->v0;
  s->v2 += s->v1;
  s->v1 = am_sip_rotate(s->v1, 17) ^ s->v2;
  s->v2 = am_sip_rotate(s->v2, 32);
}

AM_SIP_INLINE void am_sip_start(struct am_sip *s, am_u64 key0, am_u64 key1) {
  s->v0 = key0 ^ 0x736f6d6570736575ull;
  s->v1 = key1 ^ 0x646f72616e646f6dull;
  s->v2 = key0 ^ 0x6c7967656e657261ull;
  s->v3 = key1 ^ 0x7465646279746573ull;
}

AM_SIP_INLINE void am_sip_word(struct am_sip *s, am_u64 word) {
  s->v3 ^= word;
  am_sip_round(s);
  am_sip_round(s);
  s->v0 ^= word;
}

/* rest: the length % 8 bytes after the last whole word; what its upper bytes hold does not matter. */
AM_SIP_INLINE am_u64 am_sip_end(struct am_sip *s, am_u64 rest, am_u64 length) {
  am_u64 mask = (1ull << (8 * (length & 7))) - 1;
  am_sip_word(s, (rest & mask) | (length << 56));
  s->v2 ^= 0xff;
  am_sip_round(s);
  am_sip_round(s);
  am_sip_round(s);
  am_sip_round(s);
  return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

#endif
