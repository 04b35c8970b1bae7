/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/replay.h"
#include "sim/trace_file.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <sstream>

namespace cxlkv::engine {

namespace {

struct Request {
	uint64_t session = 0;
	double t_ms = 0, in = 0, out = 0; /* tokens */
};

/* A context that was cut says nothing of what was added; one token stands for it. */
std::vector<Beat> beats_of(const std::vector<Request> &requests)
{
	std::vector<Beat> beats;
	double before = 0, sum = 0;

	for (size_t i = 0; i < requests.size(); i++) {
		const double added = std::max(1.0, requests[i].in - before);
		const size_t later = std::max<size_t>(i, 1);
		const double gap = later < requests.size()
					   ? requests[later].t_ms - requests[later - 1].t_ms
					   : 0;

		beats.push_back({added, gap});
		before = requests[i].in + requests[i].out;
		sum += added;
	}
	for (Beat &beat : beats)
		beat.share /= sum;
	return beats;
}

} // namespace

Result<Pace> read_pace(const WorkloadOptions &options, const std::string &file)
{
	Result<std::string> bytes = sim::read_trace_file(file);
	if (!bytes)
		return bytes.error();

	std::istringstream lines(*bytes);
	std::vector<Request> requests; /* of the session that is being read */
	Pace pace;
	for (std::string line; pace.size() < options.conversations && std::getline(lines, line);) {
		Request r;
		unsigned long session = 0;
		if (line.empty() || line[0] == '#')
			continue;
		if (sscanf(line.c_str(), "%lu %lf %lf %lf", &session, &r.t_ms, &r.in, &r.out) != 4)
			return error(EINVAL, file + ": not a line of the agentic trace: " +
						     line.substr(0, 60));
		r.session = session;
		if (!requests.empty() && requests.back().session != r.session)
			requests.clear();
		requests.push_back(r);
		if (requests.size() == options.rounds)
			pace.push_back(beats_of(requests));
	}
	if (pace.size() < options.conversations)
		return error(EINVAL,
			     fmt::format("{}: {} sessions with {} requests, {} are wanted", file,
					 pace.size(), options.rounds, options.conversations));
	return pace;
}

} // namespace cxlkv::engine
