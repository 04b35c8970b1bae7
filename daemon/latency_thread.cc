/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "latency_thread.h"

#include "base/log.h"

#include <chrono>

namespace cxlkv {

using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kEvery(1);
constexpr int kShare = 500; /* of the time, at most one part in so many */

} // namespace

LatencyThread::LatencyThread(const Tiers &tiers, bool on)
    : on_(on), gate_(tiers.hot_nodes, tiers.warm_nodes), usable_(!tiers.warm_nodes.empty())
{
}

void LatencyThread::run()
{
	std::unique_lock lock(mutex_);
	Clock::duration wait = kEvery;

	while (!stop_) {
		if (!on_ || !usable_) {
			wake_.wait(lock, [&] { return stop_ || (on_ && usable_); });
			continue;
		}
		lock.unlock();
		const auto begin = Clock::now();
		const std::vector<double> ns = measure();
		wait = std::max<Clock::duration>(kEvery, (Clock::now() - begin) * kShare);
		lock.lock();
		if (on_) {
			const bool before = gate_.any_open();
			gate_.add(ns);
			nr_measured_++;
			if (before && !gate_.any_open())
				log_info("hot memory is slower than warm: no promotions for now");
			else if (!before && gate_.any_open())
				log_info("hot memory is faster than warm again: promotions go on");
		}
		wake_.wait_for(lock, wait, [&] { return stop_; });
	}
}

/* A node that comes online, or has room again, is measured from then on. */
std::vector<double> LatencyThread::measure()
{
	std::vector<double> ns;

	for (const LatencyGate::Node &node : state().nodes) {
		auto at = probes_.find(node.node);
		if (at == probes_.end()) {
			auto probe = LatencyProbe::create(node.node);
			if (!probe) {
				log_debug("{}", probe.error().what);
				ns.push_back(0);
				continue;
			}
			at = probes_.emplace(node.node, std::move(*probe)).first;
		}
		ns.push_back(at->second.measure());
		if (ns.back() == 0)
			probes_.erase(at);
	}
	return ns;
}

void LatencyThread::stop()
{
	std::lock_guard lock(mutex_);
	stop_ = true;
	wake_.notify_all();
}

void LatencyThread::set_on(bool on)
{
	std::lock_guard lock(mutex_);
	if (on_ && !on)
		gate_.reset();
	on_ = on;
	wake_.notify_all();
}

bool LatencyThread::may_promote(int node) const
{
	std::lock_guard lock(mutex_);
	return gate_.open(node);
}

bool LatencyThread::may_promote() const
{
	std::lock_guard lock(mutex_);
	return gate_.any_open();
}

LatencyThread::State LatencyThread::state() const
{
	std::lock_guard lock(mutex_);
	return {on_ && usable_, gate_.nodes(), gate_.nr_closed(), nr_measured_};
}

} // namespace cxlkv
