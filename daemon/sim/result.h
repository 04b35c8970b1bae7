/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a run of the simulator found, and the forms it is printed in. */
#pragma once

#include "core/model.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cxlkv::sim {

struct ThreeTiers {
	/* Where the latencies are from; printed with them. */
	std::string source = "the published model: 9 : 1 of the misses in warm and cold";
	double warm_ratio = 4; /* capacity of the warm tier in units of the hot one */
	LatencyModel latency;
	bool paper_split = true; /* that 9 : 1; else what a warm tier would hold */
};

struct Cell {
	double hit = 0;     /* % of accessed blocks that were resident */
	double useful = 0;  /* block traces: prefix hit %; attention: recall, % of the mass that was
			       resident */
	double fetched = 0; /* blocks per request; attention: per head and step */
	double ns = 0;      /* three tiers: mean latency of an access */
};

struct Row {
	std::string policy;
	bool online;
	std::vector<Cell> cells; /* by capacity */
};

struct SimResult {
	std::string trace; /* what was run, in one line */
	bool attention = false;
	std::optional<ThreeTiers> tiers;
	std::vector<double> capacities; /* % of the distinct blocks, or of a sequence's */
	std::vector<Row> rows;
	std::vector<std::string> notes; /* printed below the table */
};

std::string to_table(const SimResult &result);
std::string to_csv(const SimResult &result);
std::string to_json(const SimResult &result);
/* Hit against capacity, a line a policy. */
std::string to_svg(const SimResult &result);

/*
 * For each capacity, where rows of adaptive, LRU and OPT are there: how far
 * adaptive is above the best other online policy, and which part of the gap
 * between that and OPT it closes. "" otherwise.
 */
std::string gap_summary(const SimResult &result);

} // namespace cxlkv::sim
