/* Patterns on a whole name as one automaton: the same code in the kernel and in the test that compares it with the
 * policy engine. A pattern is a row of positions, and each position a bit. A set bit says that the name so far is
 * matched up to there. Each byte moves all bits at once, whatever the number of patterns. */
#ifndef AGENTMON_BPF_LSM_NAMES_H
#define AGENTMON_BPF_LSM_NAMES_H

#include "lsm_judge.h"

/* What a byte may enter: the position behind a set bit, or one behind such that may be left out. */
AM_SIP_INLINE void am_lsm_names_step(am_u64 *state, const struct am_lsm_names *names, am_u8 byte) {
  am_u64 words = names->words, row = names->class_of[byte] * words;
  am_u64 slash = 0 - (am_u64)(byte == '/'), tail = 0 - (am_u64)((byte & 0xc0) == 0x80);
  am_u64 one = 0, two = 0, three = 0; /* what the word before hands over */
  for (am_u64 w = 0; w < AM_LSM_NAME_WORDS; w++) {
    am_u64 old, over_one, over_two, enter, stay;
    if (w >= words) break;
    old = state[w];
    over_one = old & names->over_one[w];
    over_two = old & names->over_two[w];
    enter = old << 1 | one | over_one << 2 | two | over_two << 3 | three;
    stay = names->across[w] | (names->within[w] & ~slash) | (names->rest[w] & tail);
    state[w] = (enter & names->cell[(row + w) & (AM_LSM_NAME_CELLS - 1)]) | (old & stay);
    one = old >> 63;
    two = over_one >> 62;
    three = over_two >> 61;
  }
}

/* 1 when the name that ends here is one of the pattern. */
AM_SIP_INLINE am_u32 am_lsm_names_match(const am_u64 *state, const struct am_lsm_pattern *pattern) {
  am_u64 found = 0;
  for (am_u32 back = 0; back < AM_LSM_NAME_ENDS; back++) {
    am_u32 at = pattern->end - back;
    am_u64 counts = back <= pattern->early;
    found |= counts & (state[(at >> 6) & (AM_LSM_NAME_WORDS - 1)] >> (at & 63));
  }
  return found & 1;
}

#endif
