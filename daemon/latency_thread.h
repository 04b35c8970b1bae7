/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures the nodes' latency now and then, for the gate of promotions
 * (core/latency_gate.h). A thread of its own: a measurement is some milliseconds
 * of waiting for slow memory. It takes less than 1/500 of a CPU.
 */
#pragma once

#include "core/latency_gate.h"
#include "sys/latency_probe.h"
#include "tiers.h"

#include <condition_variable>
#include <map>
#include <mutex>

namespace cxlkv {

class LatencyThread {
public:
	/* on: as mover.latency_gate. */
	LatencyThread(const Tiers &tiers, bool on);

	void run(); /* until stop() */
	void stop();
	/* Off: every node is open. Any thread, as all below. */
	void set_on(bool on);
	[[nodiscard]] bool may_promote(int node) const;
	[[nodiscard]] bool may_promote() const; /* to any node */

	struct State {
		bool on;
		std::vector<LatencyGate::Node> nodes;
		uint64_t nr_closed, nr_measured;
	};
	[[nodiscard]] State state() const;

private:
	std::vector<double> measure();

	mutable std::mutex mutex_;
	std::condition_variable wake_;
	bool stop_ = false, on_;
	LatencyGate gate_;
	uint64_t nr_measured_ = 0;
	std::map<int, LatencyProbe> probes_; /* of this thread alone */
	bool usable_;                        /* there is a warm tier */
};

} // namespace cxlkv
