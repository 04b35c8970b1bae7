/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* When tiering cannot help: arithmetic on the daemon's counters and on what was measured. */
#include "cli/doctor.h"

#include "cli/control_client.h"
#include "cli/units.h"
#include "core/decide.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cxlkv {

namespace {

using nlohmann::json;

constexpr double kMargin = 3; /* a fetch pays where it is so many times cheaper; [S], plan */

void examine_sizes(uint64_t hot, uint64_t warm, uint64_t cold, Findings &out)
{
	if (warm && warm < hot)
		out.push_back({Finding::Warn, "sizes",
			       "the warm tier is smaller than the hot one and only mirrors it",
			       "raise [warm] limit, or take the tier out with [warm] limit = 0"});
	if (cold < hot + warm)
		out.push_back({Finding::Warn, "sizes",
			       "the cold tier is smaller than the tiers above it",
			       "raise [cold] size"});
}

void examine_element(const json &arena, Findings &out)
{
	if (number_at(arena, "/elem_bytes") >= 2)
		out.push_back(
			{Finding::Note, "use",
			 fmt::format("arena {} keeps {} bytes an element",
				     number_at(arena, "/arena"), number_at(arena, "/elem_bytes")),
			 "FP8 KV in the engine halves what every tier has to hold and move, and "
			 "prefix-aware routing saves whole prefills: do both first"});
}

/* From the drive; what comes back from the warm tier was never away. */
void examine_fetch(const json &arena, const Rates &rates, Findings &out)
{
	double token_bytes = 2.0 * real_at(arena, "/layers") * real_at(arena, "/kv_heads") *
			     real_at(arena, "/head_dim") * real_at(arena, "/elem_bytes");
	if (token_bytes <= 0)
		return;
	if (rates.read_bytes_per_s <= 0 || rates.prefill_tokens_per_s <= 0) {
		out.push_back({Finding::Note, "fetch",
			       "whether bringing KV back is cheaper than computing it is not known",
			       "cxl-kv bench -o FILE, then cxl-kv doctor --measured FILE --prefill "
			       "TOKENS_PER_S, what your engine prefills a second"});
		return;
	}
	double fetch_s = token_bytes / rates.read_bytes_per_s;
	double recompute_s = recompute_seconds(1, rates.prefill_tokens_per_s);
	std::string text =
		fmt::format("arena {}: a token is {:.1f} us from the drive, {:.1f} us to "
			    "compute, {:.1f}x",
			    number_at(arena, "/arena"), fetch_s * 1e6, recompute_s * 1e6,
			    recompute_s / fetch_s);
	if (worth_fetching(fetch_s, recompute_s, kMargin, false))
		out.push_back({Finding::Good, "fetch", text, ""});
	else
		out.push_back({Finding::Warn, "fetch",
			       text + fmt::format(": not the {:g}x at which it pays", kMargin),
			       "drop idle conversations instead of spilling them, or use a faster "
			       "drive, smaller KV (FP8, fewer KV heads), or the warm tier only"});
}

} // namespace

void examine_use(const json &status, const json &list, const Rates &rates, Findings &out)
{
	examine_sizes(number_at(status, "/tiers/hot/limit_bytes"),
		      number_at(status, "/tiers/warm/limit_bytes"),
		      number_at(status, "/tiers/cold/limit_bytes"), out);
	if (number_at(status, "/uptime_s") > 600 && number_at(status, "/made") &&
	    !number_at(status, "/spill/spilled") && !number_at(status, "/mover/demote/moved"))
		out.push_back({Finding::Note, "use",
			       "in more than ten minutes no block had to leave the hot tier",
			       "nothing is gained here yet: serve longer contexts or more "
			       "sessions, or give the memory to something else"});
	/* One of a fleet's engines speaks for all. The daemon's own arena keeps objects, whose
	 * elements nobody knows. */
	json engine = pick_arena(list, 0, status);
	if (!engine.is_null() && number_at(engine, "/pid") != number_at(status, "/pid")) {
		examine_element(engine, out);
		examine_fetch(engine, rates, out);
	} else if (rates.prefill_tokens_per_s > 0 || rates.read_bytes_per_s > 0) {
		out.push_back({Finding::Note, "fetch",
			       "no engine whose KV could be compared is connected to a daemon",
			       "run this again while one is"});
	}
}

} // namespace cxlkv
