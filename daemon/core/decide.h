/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Fetch KV from the tier it is in, compute it again, do both at once, or not
 * keep it at all. Arithmetic on what the caller measured; seconds and bytes.
 */
#pragma once

#include <array>
#include <cstdint>

namespace cxlkv {

/* A part of the KV, and the way from the tier that has it. */
struct FetchPart {
	double bytes = 0;
	double bytes_per_s = 0;
	double wait_s = 0; /* before its first byte: the queue, and what a request costs */

	/* Infinite where the way is not known. */
	[[nodiscard]] double seconds() const;
};

struct DecideInput {
	double tokens = 0;
	double prefill_tokens_per_s = 0; /* of the caller, at this length */
	std::array<FetchPart, 2> parts;  /* warm, cold; one is fetched after the other */
	double ask_s = 0;                /* what a fetch costs the caller beside the transfer */
	double keep_s = 0;               /* what keeping costs now: the write to a lower tier */
	double return_probability = 1;   /* 1: the session is here and waits */
	double margin = 3;               /* fetch where it is so many times cheaper */
	bool latency = false;            /* or cheaper at all */
	bool can_split = false;          /* the caller computes while the rest is fetched */
};

enum class Verdict : uint8_t {
	Fetch,
	Recompute,
	Split, /* compute the first split_tokens, fetch the others meanwhile */
	Drop,  /* not worth keeping for the chance that it is asked for */
};

struct Decision {
	Verdict verdict = Verdict::Recompute;
	double split_tokens = 0;
	double fetch_s = 0, recompute_s = 0;
	double chosen_s = 0; /* what the verdict is expected to take when it comes to it */
};

double recompute_seconds(double tokens, double tokens_per_s);

/* The rule of thumb alone: `margin` times cheaper, or, where latency counts, cheaper at all. */
bool worth_fetching(double fetch_s, double recompute_s, double margin, bool latency);

Decision decide(const DecideInput &input);

} // namespace cxlkv
