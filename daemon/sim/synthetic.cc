/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/synthetic.h"

#include "core/types.h"
#include "sim/att_replay.h"
#include "sim/core_tier.h"
#include "sim/index_list.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <memory>

namespace cxlkv::sim {

namespace {

constexpr uint32_t nr_window = 4;       /* blocks before the current one that are always read */
constexpr uint32_t nr_lasting = 4;      /* heavy hitters of the session */
constexpr uint32_t nr_of_topic = 6;     /* of the topic */
constexpr uint32_t topic_tokens = 2048; /* until the next topic, at each user's own time */

uint64_t mix(uint64_t seed, uint64_t value)
{
	uint64_t z = seed + (value + 1) * 0x9E3779B97F4A7C15;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
	z = (z ^ z >> 27) * 0x94D049BB133111EB;
	return z ^ z >> 31;
}

Geometry geometry_of(const Synthetic &load)
{
	Geometry geometry;
	geometry.nr_slots = load.users;
	geometry.nr_kv_heads = load.heads % 8 ? 1 : 8;
	geometry.nr_layers = load.heads / geometry.nr_kv_heads;
	geometry.tokens_per_block = static_cast<uint32_t>(load.tokens_per_block);
	geometry.tokens_per_slot = load.tokens;
	return geometry;
}

/* A hot tier of so many blocks. */
class Tier {
public:
	virtual ~Tier() = default;
	virtual void step() {}
	virtual void position(uint32_t, uint32_t) {}
	/* The context: blocks that are in cold. */
	virtual void add(uint32_t, uint32_t) {}
	[[nodiscard]] virtual bool resident(uint32_t block) const = 0;
	virtual void read(uint32_t block, float mass) = 0;
	virtual void plan() {}
};

class Lru : public Tier {
public:
	Lru(uint32_t nr_blocks, uint64_t capacity) : lists_(nr_blocks, 1), capacity_(capacity) {}

	[[nodiscard]] bool resident(uint32_t block) const override
	{
		return !lists_.list_of(block);
	}
	void read(uint32_t block, float) override
	{
		if (resident(block))
			return lists_.move(0, block);
		lists_.push(0, block);
		if (lists_.size(0) > capacity_)
			lists_.pop_oldest(0);
	}

private:
	IndexLists lists_;
	uint64_t capacity_;
};

class Core : public Tier {
public:
	Core(const Geometry &geometry, const char *preset, uint64_t capacity)
	    : tier_(geometry, sim_options(preset), capacity)
	{
	}

	void step() override { tier_.step(); }
	void position(uint32_t slot, uint32_t token) override { tier_.position(slot, token); }
	void add(uint32_t first, uint32_t nr) override { tier_.move(first, nr, Where::Cold); }
	[[nodiscard]] bool resident(uint32_t block) const override { return tier_.resident(block); }
	void read(uint32_t block, float mass) override { tier_.read(block, mass); }
	void plan() override { tier_.plan(); }

private:
	CoreTier tier_;
};

class Run {
public:
	Run(const Synthetic &load, const std::string &policy, double percent)
	    : load_(load), geometry_(geometry_of(load))
	{
		auto capacity = std::max<uint64_t>(
			1, static_cast<uint64_t>(percent / 100 * geometry_.nr_blocks()));
		if (policy == "lru")
			tier_ = std::make_unique<Lru>(geometry_.nr_blocks(), capacity);
		else
			tier_ = std::make_unique<Core>(geometry_, policy.c_str(), capacity);
		const auto nr =
			static_cast<uint32_t>((load.tokens - load.steps) / load.tokens_per_block);
		for (uint32_t user = 0; user < load.users; user++)
			for (uint32_t head = 0; head < load.heads && nr; head++)
				tier_->add(geometry_.block_index(user, head, 0), nr);
	}

	void step(uint32_t t)
	{
		const auto token = static_cast<uint32_t>(load_.tokens - load_.steps + t);
		tier_->step();
		for (uint32_t user = 0; user < load_.users; user++) {
			tier_->position(user, token);
			for (uint32_t head = 0; head < load_.heads; head++)
				read(user, head, token, t >= load_.steps / 2);
		}
		tier_->plan();
	}

	AttHits hits;
	uint64_t nr_reads = 0;

private:
	void read(uint32_t user, uint32_t head, uint32_t token, bool counted)
	{
		const uint32_t first = geometry_.block_index(user, head, 0);
		synthetic_reads(load_, user, head, token, reads_);
		nr_reads += reads_.size();
		hits.nr_head_steps += counted;
		for (const SyntheticRead &read : reads_) {
			const bool hit = tier_->resident(first + read.block);
			if (counted) {
				hits.nr_accesses++;
				(hit ? hits.nr_hits : hits.nr_fetched)++;
				hits.mass += read.mass;
				hits.mass_resident += hit ? read.mass : 0;
			}
			tier_->read(first + read.block, read.mass);
		}
	}

	const Synthetic &load_;
	const Geometry geometry_;
	std::unique_ptr<Tier> tier_;
	std::vector<SyntheticRead> reads_;
};

} // namespace

std::string Synthetic::check() const
{
	if (!users || !tokens || !heads || !steps || !tokens_per_block)
		return "at least one of everything";
	if (tokens % tokens_per_block || steps > tokens)
		return "tokens that are a multiple of those of a block, and no more steps than "
		       "tokens";
	const uint64_t nr = uint64_t{users} * heads * (tokens / tokens_per_block);
	if (heads > 1024 * 8 || users > CXL_KV_MAX_SLOTS || nr > CXL_KV_MAX_BLOCKS)
		return fmt::format("at most {} heads, {} users and {} blocks in all", 1024 * 8,
				   CXL_KV_MAX_SLOTS, CXL_KV_MAX_BLOCKS);
	return "";
}

void synthetic_reads(const Synthetic &load, uint32_t user, uint32_t head, uint32_t token,
		     std::vector<SyntheticRead> &reads)
{
	const uint64_t session = mix(load.seed, user), own = mix(session, head);
	const auto current = static_cast<uint32_t>(token / load.tokens_per_block);
	/* Topics shift at each user's own time, for all its heads. */
	const uint64_t topic = mix(own, 1000 + (token + session % topic_tokens) / topic_tokens);
	auto add = [&](uint64_t block, float mass) { reads.push_back({uint32_t(block), mass}); };

	reads.clear();
	add(0, 0.05f + static_cast<float>(own % 100) / 300);
	for (uint32_t i = 0; i <= std::min(nr_window, current); i++)
		add(current - i, 0.25f / static_cast<float>(1u << i));
	for (uint32_t i = 0; i < nr_lasting; i++)
		add(mix(own, i) % (current + 1), 0.08f / static_cast<float>(i + 1));
	for (uint32_t i = 0; i < nr_of_topic; i++)
		add(mix(topic, i) % (current + 1), 0.12f / static_cast<float>(i + 1));
	add(mix(mix(own, token), 7) % (current + 1), 0.01f); /* anything */
	std::ranges::stable_sort(reads, {}, &SyntheticRead::block);
	const auto twice = std::ranges::unique(reads, {}, &SyntheticRead::block);
	reads.erase(twice.begin(), twice.end());
}

SimResult run_synthetic(const Synthetic &load, const std::vector<std::string> &policies,
			const std::vector<double> &budgets, const Progress &progress)
{
	using Clock = std::chrono::steady_clock;
	SimResult result;
	result.trace = fmt::format(
		"synthetic: for scaling, not for claims of quality; {} users x {} "
		"tokens x {} heads, {} tokens a block, {} steps, seed {}",
		load.users, load.tokens, load.heads, load.tokens_per_block, load.steps, load.seed);
	result.attention = true;
	result.capacities = budgets;
	Meter meter(policies.size() * budgets.size() * load.steps, progress);
	for (const std::string &policy : policies) {
		Row row{policy, true, {}};
		for (double percent : budgets) {
			Run run(load, policy, percent);
			const auto begin = Clock::now();
			for (uint32_t t = 0; t < load.steps; t++) {
				run.step(t);
				meter.add(1);
			}
			const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
			row.cells.push_back({run.hits.hit_percent(), run.hits.recall_percent(),
					     run.hits.fetched_per_head_step(), 0});
			result.notes.push_back(fmt::format(
				"{} at {:g} %: {:.0f} ns a read and {:.1f} ms a step of all users, "
				"generator included",
				policy, percent, took.count() / double(run.nr_reads),
				took.count() / 1e6 / load.steps));
		}
		result.rows.push_back(std::move(row));
	}
	return result;
}

} // namespace cxlkv::sim
