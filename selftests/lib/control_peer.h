/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A client without the library: whatever lines, files and items it likes. */
#pragma once

#include "base/fd.h"

#include <array>
#include <cxl_kv_shared.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cxlkv::test {

class ControlPeer {
public:
	static constexpr int timeout_ms = 10000;

	/* Throws where nobody listens. */
	explicit ControlPeer(const std::string &path);

	/* False: the daemon hung up, or takes no more. */
	bool send(const std::string &text, const std::vector<int> &files = {});
	/* The next answer; null where there is none. */
	nlohmann::json answer(int wait_ms = timeout_ms);
	nlohmann::json ask(const std::string &line, const std::vector<int> &files = {});
	/* Reads and forgets what has come. False: the daemon hung up. */
	bool skip_answers();

private:
	Fd fd_;
};

/* The client's side of the rings for keyed objects. */
struct PeerRings {
	PeerRings();
	~PeerRings();
	PeerRings(const PeerRings &) = delete;
	PeerRings &operator=(const PeerRings &) = delete;

	/* For the request `rings`. */
	[[nodiscard]] std::vector<int> files() const;
	/* Puts items into a lane without looking whether there is room, and rings. */
	void put(cxl_kv_lane_class lane, const std::vector<cxl_kv_item> &items);
	[[nodiscard]] uint32_t nr_results(cxl_kv_lane_class lane) const;

	Fd memory, doorbell;
	std::array<Fd, CXL_KV_NR_LANES> events;
	cxl_kv_lane *lanes;
};

} // namespace cxlkv::test
