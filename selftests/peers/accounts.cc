/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "peers/accounts.h"

#include <chrono>
#include <thread>

namespace cxlkv::peers {

using nlohmann::json;

json Accounts::status()
{
	return daemon_.ask(R"({"op":"status"})");
}

void Accounts::sample()
{
	const json now = status();

	for (const char *direction : {"promote", "demote"}) {
		const json &pages = now.at("mover").at(direction);
		auto nr = [&](const char *name) { return pages.at(name).get<uint64_t>(); };
		nr_broken_ += nr("attempted") != nr("moved") + nr("failed") + nr("skipped");
		nr_samples_++;
	}
}

json Accounts::at_rest(const std::function<json()> &numa_maps)
{
	constexpr int tries = 100;
	constexpr std::chrono::milliseconds wait(50);
	json before = status(), maps, after;

	for (int i = 0; i < tries; i++) {
		std::this_thread::sleep_for(wait);
		maps = numa_maps();
		after = status();
		if (after.at("tiers") == before.at("tiers") &&
		    after.at("mover") == before.at("mover"))
			break;
		before = std::move(after);
	}
	return {{"status", before},
		{"numa_maps_bytes", maps},
		{"identities", {{"samples", nr_samples_}, {"broken", nr_broken_}}}};
}

} // namespace cxlkv::peers
