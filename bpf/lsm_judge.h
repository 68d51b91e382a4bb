/* How a path is judged by the entries of a policy: the same code in the kernel and in the test that compares it
 * with the policy engine. Whoever includes it defines before:
 *   am_lsm_find(policy, kind, hash): the entry, or null. */
#ifndef AGENTMON_BPF_LSM_JUDGE_H
#define AGENTMON_BPF_LSM_JUDGE_H

#include "lsm_abi.h"
#include "siphash.h"

#define AM_LSM_NONE 0xffffffffu /* am_lsm_judge.best: nothing matches */
#define AM_LSM_ROOT_HASH 0x6167656e746d6f6eull

/* MISSING: entries of the policy have been taken away. */
enum am_lsm_verdict { AM_LSM_PASS = 0, AM_LSM_DENY = 1, AM_LSM_ASK = 2, AM_LSM_MISSING = 8 };

/* Segments are keyed hashes, so no key is needed here. */
AM_SIP_INLINE am_u64 am_lsm_mix(am_u64 hash, am_u64 segment) {
  hash = (hash ^ segment) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 32);
}

AM_SIP_INLINE void am_lsm_begin(struct am_lsm_judge *j, am_u32 asked, am_u32 implied, am_u32 count) {
  am_u32 left = asked | implied;
  j->hash = AM_LSM_ROOT_HASH;
  j->roots = 1;
  j->asked = asked;
  j->implied = implied;
  j->count = count;
  for (am_u32 s = 0; s < AM_LSM_SLOTS; s++) {
    j->slot[s] = left & -left;
    left &= left - 1;
    for (am_u32 l = 0; l < AM_LSM_LAYERS; l++) j->best[l][s] = AM_LSM_NONE;
  }
}

/* 1 when any bit is set. */
AM_SIP_INLINE am_u64 am_lsm_any(am_u64 bits) { return (bits | (0 - bits)) >> 63; }

/* The lowest rank decides; of one rank the pattern that is sure. Without branches: the verifier follows each of
 * them, for each rule, operation and look-up. applies: 0 or 1. */
AM_SIP_INLINE void am_lsm_add(struct am_lsm_judge *j, const struct am_lsm_match *match, am_u32 applies) {
  am_u64 word = (am_u64)match->rank << 3 | (match->flags & (AM_LSM_STOPS | AM_LSM_STOPS_IMPLIED | AM_LSM_UNSURE));
  am_u64 operations = match->operations & (0ull - applies);
  am_u32 *best = j->best[match->layer & (AM_LSM_LAYERS - 1)];
  for (am_u32 s = 0; s < AM_LSM_SLOTS; s++) {
    am_u64 hit = operations & j->slot[s];
    am_u64 candidate = word | (((0 - hit) >> 63) - 1); /* all ones when it is no hit */
    am_u64 lower = (am_u64)((am_s64)((candidate & 0xffffffff) - best[s]) >> 63);
    best[s] = (am_u32)((candidate & lower) | (best[s] & ~lower));
  }
}

/* Rules on segments and names: below the directory that they are about. */
AM_SIP_INLINE void am_lsm_add_below(struct am_lsm_judge *j, const struct am_lsm_node *node, am_u32 i) {
  const struct am_lsm_match *match = &node->match[i & (AM_LSM_MATCHES - 1)];
  am_lsm_add(j, match, (i < node->count) & (j->roots >> (match->root & 63) & 1));
}

/* Rules on paths: index is how many segments of the object's path lead to this node. */
AM_SIP_INLINE void am_lsm_add_node(struct am_lsm_judge *j, const struct am_lsm_node *node, am_u32 i, am_u32 index) {
  const struct am_lsm_match *match = &node->match[i & (AM_LSM_MATCHES - 1)];
  am_lsm_add(j, match, (i < node->count) & ((index == j->count) | ((match->flags & AM_LSM_TREE) != 0)));
}

/* One layer after the other, [0] first, until one says more than PASS or that it is final. */
#define AM_LSM_FINAL 4u
AM_SIP_INLINE am_u32 am_lsm_layer(const struct am_lsm_policy *policy, struct am_lsm_judge *j, am_u32 l) {
  am_u64 unsure = 0, matched = 0, stopped = 0, rank = AM_LSM_NO_RULE, operation = 0;
  l &= AM_LSM_LAYERS - 1;
  for (am_u32 s = 0; s < AM_LSM_SLOTS; s++) {
    am_u64 bit = j->slot[s], best = j->best[l][s], defaults = policy->defaults[l];
    /* Each 0 or 1. */
    am_u64 used = am_lsm_any(bit), asked = am_lsm_any(bit & j->asked), read = am_lsm_any(bit & policy->read_operations);
    am_u64 socket = am_lsm_any(bit & policy->socket_operations), exec = am_lsm_any(bit & policy->exec_operations);
    am_u64 write = (read | socket | exec) ^ 1;
    am_u64 none = am_lsm_any(best ^ AM_LSM_NONE) ^ 1, open = (best >> 2 & 1) & (none ^ 1);
    am_u64 by_default = asked & ((defaults & read) | (defaults >> 1 & write) | (defaults >> 2 & socket));
    am_u64 by_rule = ((best & asked) | (best >> 1 & (asked ^ 1))) & (open ^ 1);
    am_u64 stops = used & 1 & ((by_default & none) | (by_rule & (none ^ 1)));
    am_u64 takes = 0 - (stops & (none ^ 1) & (stopped ^ 1)); /* all ones: this is the rule */
    rank = (best >> 3 & takes) | (rank & ~takes);
    operation = (bit & takes) | (operation & ~takes);
    stopped |= stops;
    unsure |= open & used;
    matched |= asked & (none ^ 1) & (open ^ 1);
  }
  j->layer = policy->layer[l];
  j->rank = (am_u32)rank;
  j->operation = (am_u32)operation;
  if (stopped) return AM_LSM_DENY;
  if (l == 0 && unsure) return AM_LSM_ASK | AM_LSM_FINAL;
  return l == 0 && matched ? AM_LSM_FINAL : 0;
}

#endif
