/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One frame of `cxl-kv top`, as lines of styled pieces: from two samples of the daemon's counters.
 */
#pragma once

#include "cli/heat_map.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cxlkv {

struct TopSample {
	double at_s = 0; /* any clock that only goes forward */
	nlohmann::json status;
	nlohmann::json arena; /* the one arena shown, of `list`; null where there is none */
	nlohmann::json heads; /* its `heads` */
};

struct TopPiece {
	enum Style { Normal, Bold, Dim, Alarm, Heat } style = Normal;
	std::string text;
	size_t level = 0; /* Heat: 0..HeatMap::kNrLevels - 1 */
};
using TopLine = std::vector<TopPiece>;

struct TopRoom {
	size_t width = 80, height = 24;
};

/* before and now may be the same sample: then there are no rates yet. */
std::vector<TopLine> top_frame(const TopSample &before, const TopSample &now, HeatOf of,
			       TopRoom room);

/* The frame without its styles. */
std::string plain(const std::vector<TopLine> &frame);

} // namespace cxlkv
