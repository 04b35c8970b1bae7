/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whether a hot node is the faster one at the moment. Under load the nearer node
 * can be the slower one, and pages that are moved there make it slower still
 * (Vuppalapati and Agarwal, Tiered Memory Management: Access Latency is the Key!,
 * SOSP'24). A hot node closes to promotions where some measurements in a row find
 * it close_at times as slow as the slowest warm node, and opens where as many find
 * it below open_at, so that noise does not swing it. Pure: measurements are passed
 * in.
 */
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cxlkv {

class LatencyGate {
public:
	static constexpr double close_at = 1.25, open_at = 1.05;
	static constexpr int in_a_row = 3;

	struct Node {
		int node;
		double ns = 0; /* as measured last; 0 = it could not be */
		bool open = true;
		int nr_against = 0; /* measurements in a row that say the contrary */
	};

	LatencyGate(const std::vector<int> &hot_nodes, const std::vector<int> &warm_nodes)
	{
		for (int node : hot_nodes)
			hot_.push_back({node});
		for (int node : warm_nodes)
			warm_.push_back({node});
	}

	/* One measurement of each node in the order of nodes(); 0 = it could not be measured. */
	void add(const std::vector<double> &ns)
	{
		double slowest = 0;

		for (size_t i = 0; i < warm_.size(); i++)
			slowest = std::max(slowest, warm_[i].ns = ns[hot_.size() + i]);
		for (size_t i = 0; i < hot_.size(); i++) {
			Node &node = hot_[i];
			node.ns = ns[i];
			const double limit = slowest * (node.open ? close_at : open_at);
			const bool slower = slowest > 0 && node.ns > limit;
			node.nr_against = slower == node.open ? node.nr_against + 1 : 0;
			if (node.nr_against < in_a_row)
				continue;
			nr_closed_ += node.open;
			node.open = !node.open;
			node.nr_against = 0;
		}
	}
	/* Opens all and forgets. */
	void reset()
	{
		for (auto *nodes : {&hot_, &warm_})
			for (Node &node : *nodes)
				node = {node.node};
	}

	[[nodiscard]] bool open(int hot_node) const
	{
		auto at = std::ranges::find(hot_, hot_node, &Node::node);
		return at == hot_.end() || at->open;
	}
	[[nodiscard]] bool any_open() const { return std::ranges::any_of(hot_, &Node::open); }
	/* Hot nodes, then warm ones. */
	[[nodiscard]] std::vector<Node> nodes() const
	{
		std::vector<Node> all = hot_;
		all.insert(all.end(), warm_.begin(), warm_.end());
		return all;
	}
	/* Times that a node closed. */
	[[nodiscard]] uint64_t nr_closed() const { return nr_closed_; }

private:
	std::vector<Node> hot_, warm_;
	uint64_t nr_closed_ = 0;
};

} // namespace cxlkv
