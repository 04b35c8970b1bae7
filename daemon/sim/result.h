/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a run of the simulator found, and the forms it is printed in. */
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cxlkv::sim {

struct Cell {
	double hit = 0;     /* % of accessed blocks that were resident */
	double useful = 0;  /* block traces: prefix hit %; attention: recall, % of the mass that was
			       resident */
	double fetched = 0; /* attention: blocks per head and step */
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
	bool three_tier = false;
	std::vector<double> capacities; /* % of the distinct blocks, or of a sequence's */
	std::vector<Row> rows;
};

std::string to_table(const SimResult &result);
std::string to_csv(const SimResult &result);
std::string to_json(const SimResult &result);
/* Hit against capacity, a line a policy. */
std::string to_svg(const SimResult &result);

/*
 * Where an adaptive row and opt are there: how much of the gap between the best
 * fixed online policy and opt the adaptive one closes. "" otherwise.
 */
std::string gap_summary(const SimResult &result);

} // namespace cxlkv::sim
