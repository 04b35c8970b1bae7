/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Options of the policy. Each with unit and range:
 *
 * preset                 adaptive | paper
 * alpha                  weight of a new score, 0.0001..1
 * access_mass            attention mass of a block from which it counts as accessed, 0..1
 * decay_steps            steps, 1..1e9
 * anchor_blocks          blocks, 0..1024
 * head_floor             share of the mean of the session's heads, 0..1; 0 = no floor
 * prefetch_window_tokens tokens, 0..1048576; 0 = no window prefetch
 * prefetch_layers        layers, 0..64; 0 = no look-ahead
 * phase_ratio            reads per write, 1..1e6
 * phase_hysteresis       share of phase_ratio, 0.01..1
 * reuse_half_life_steps  steps, 100..1e9
 * promote_score          0..1, above demote_score
 * demote_score           0..1
 * min_residency_ms       ms, 0..16000
 * move_residency_ms      ms, 0..16000
 * refusal_ms             ms, 1..250
 * order_timeout_ms       ms, 100..16000
 * wake_ms                ms, 100..600000
 * max_extent_bytes       bytes, 4096..2 MiB, an extent of the store
 */
#include "core/policy.h"

#include <cmath>

namespace cxlkv {

namespace {

struct Range {
	const char *name;
	double value, low, high;
};

std::string number(double value)
{
	std::string text = std::to_string(value);
	text.erase(text.find_last_not_of('0') + 1);
	if (text.back() == '.')
		text.pop_back();
	return text;
}

} // namespace

std::string check_options(const PolicyOptions &o)
{
	if (o.preset != "adaptive" && o.preset != "paper")
		return "preset is \"" + o.preset + "\", allowed adaptive, paper";
	const Range ranges[] = {
		{"alpha", o.alpha, 1e-4, 1},
		{"access_mass", o.access_mass, 0, 1},
		{"decay_steps", o.decay_steps, 1, 1e9},
		{"anchor_blocks", double(o.anchor_blocks), 0, 1024},
		{"head_floor", o.head_floor, 0, 1},
		{"prefetch_window_tokens", double(o.prefetch_window_tokens), 0, 1 << 20},
		{"prefetch_layers", double(o.prefetch_layers), 0, 64},
		{"phase_ratio", o.phase_ratio, 1, 1e6},
		{"phase_hysteresis", o.phase_hysteresis, 0.01, 1},
		{"reuse_half_life_steps", o.reuse_half_life_steps, 100, 1e9},
		{"promote_score", o.promote_score, 0, 1},
		{"demote_score", o.demote_score, 0, 1},
		{"min_residency_ms", double(o.min_residency_ms), 0, 16000},
		{"move_residency_ms", double(o.move_residency_ms), 0, 16000},
		{"refusal_ms", double(o.refusal_ms), 1, 250},
		{"order_timeout_ms", double(o.order_timeout_ms), 100, 16000},
		{"wake_ms", double(o.wake_ms), 100, 600000},
		{"max_extent_bytes", double(o.max_extent_bytes), 4096, 2 << 20},
	};
	for (const Range &range : ranges)
		if (!(range.value >= range.low &&
		      range.value <= range.high)) /* so that NaN fails */
			return std::string(range.name) + " is " + number(range.value) +
			       ", allowed " + number(range.low) + ".." + number(range.high);
	if (o.demote_score > o.promote_score)
		return "demote_score " + number(o.demote_score) + " is above promote_score " +
		       number(o.promote_score) + ": blocks would move to and fro";
	return "";
}

} // namespace cxlkv
