/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the daemon counts of itself, asked while it works: do its numbers add up? */
#pragma once

#include "lib/control_peer.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace cxlkv::peers {

class Accounts {
public:
	/* Throws where no daemon listens. */
	explicit Accounts(const std::string &socket) : daemon_(socket) {}

	/* Attempted = moved + failed + skipped, in each direction? */
	void sample();
	/*
	 * Status, numa_maps as the caller reads them, and what the samples came to. Both are of
	 * one moment: nothing moves between two questions around it. Waits some seconds for that.
	 */
	nlohmann::json at_rest(const std::function<nlohmann::json()> &numa_maps);

private:
	nlohmann::json status();

	test::ControlPeer daemon_;
	uint64_t nr_samples_ = 0, nr_broken_ = 0;
};

} // namespace cxlkv::peers
