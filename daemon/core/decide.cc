/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/decide.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cxlkv {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();
/* Doing both at once has to save this share of the better one: it costs memory bandwidth twice. */
constexpr double split_gain = 0.1;

double fetch_seconds(const DecideInput &in)
{
	double sum = 0;
	for (const FetchPart &part : in.parts)
		sum += part.seconds();
	return sum > 0 ? in.ask_s + sum : 0;
}

/*
 * The head is computed, which needs nothing but itself, while the tail comes:
 * both end together where split x recompute = wait + (1 - split) x transfer.
 */
void try_split(const DecideInput &in, Decision &decision)
{
	double wait = in.ask_s;
	for (const FetchPart &part : in.parts)
		if (part.bytes > 0)
			wait += part.wait_s;
	double transfer = decision.fetch_s - wait;
	double share = decision.fetch_s / (decision.recompute_s + transfer);
	double tokens = std::round(share * in.tokens);
	double seconds = share * decision.recompute_s;

	if (!(share < 1) || tokens < 1 || tokens >= in.tokens ||
	    seconds > (1 - split_gain) * decision.chosen_s)
		return;
	decision.verdict = Verdict::Split;
	decision.split_tokens = tokens;
	decision.chosen_s = seconds;
}

} // namespace

double FetchPart::seconds() const
{
	if (!(bytes > 0))
		return 0;
	return bytes_per_s > 0 ? wait_s + bytes / bytes_per_s : never;
}

double recompute_seconds(double tokens, double tokens_per_s)
{
	return tokens_per_s > 0 ? tokens / tokens_per_s : never;
}

bool worth_fetching(double fetch_s, double recompute_s, double margin, bool latency)
{
	if (latency)
		return fetch_s < recompute_s;
	return fetch_s < never && recompute_s >= margin * fetch_s;
}

Decision decide(const DecideInput &in)
{
	Decision out;
	const double p = std::clamp(in.return_probability, 0.0, 1.0);

	out.fetch_s = fetch_seconds(in);
	out.recompute_s = recompute_seconds(in.tokens, in.prefill_tokens_per_s);
	/* Keeping is paid for at once, the rest only if the session comes back. */
	bool fetch = p > 0 && worth_fetching(in.keep_s / p + out.fetch_s, out.recompute_s,
					     in.margin, in.latency);
	if (!fetch && p < 1) {
		out.verdict = Verdict::Drop;
		out.chosen_s = out.recompute_s;
		return out;
	}
	out.verdict = fetch ? Verdict::Fetch : Verdict::Recompute;
	out.chosen_s = fetch ? out.fetch_s : out.recompute_s;
	if (in.latency && in.can_split && std::isfinite(out.fetch_s) &&
	    std::isfinite(out.recompute_s))
		try_split(in, out);
	return out;
}

} // namespace cxlkv
