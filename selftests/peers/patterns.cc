/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "peers/patterns.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

namespace cxlkv::peers {

namespace {

constexpr uint32_t steps_max = 20; /* decode steps in an interval */
constexpr uint32_t reads_wanted = 5000;

/* The same blocks of every head. */
std::vector<Run> in_all_heads(const Shape &shape, uint32_t slot, uint32_t block, uint32_t nr)
{
	std::vector<Run> runs;

	for (uint32_t head = 0; head < Shape::nr_heads; head++)
		runs.push_back({shape.at(slot, head, block), nr});
	return runs;
}

std::vector<uint32_t> blocks_of(const std::vector<Run> &runs)
{
	std::vector<uint32_t> blocks;

	for (const Run &run : runs)
		for (uint32_t i = 0; i < run.nr; i++)
			blocks.push_back(run.first + i);
	return blocks;
}

/* Steps that read all of a set each, as attention over it does. */
void sweep(Interval &interval, const std::vector<uint32_t> &set)
{
	const auto nr = static_cast<uint32_t>(set.size());
	const uint32_t steps = std::clamp(reads_wanted / nr, 1u, steps_max);

	for (uint32_t s = 0; s < steps; s++) {
		interval.read.insert(interval.read.end(), set.begin(), set.end());
		interval.step_ends.push_back(static_cast<uint32_t>(interval.read.size()));
	}
}

/* A base of patterns over one arena of which all is there from the start. */
class Arena : public Pattern {
public:
	Arena(Shape shape, uint32_t nr_intervals, uint64_t seed)
	    : shape_(shape), nr_intervals_(nr_intervals), random_(seed)
	{
	}
	[[nodiscard]] Shape shape() const override { return shape_; }
	[[nodiscard]] uint32_t nr_intervals() const override { return nr_intervals_; }
	[[nodiscard]] std::vector<Run> before() const override
	{
		std::vector<Run> all;
		for (uint32_t slot = 0; slot < shape_.nr_slots; slot++)
			for (const Run &run : in_all_heads(shape_, slot, 0, shape_.blocks_per_head))
				all.push_back(run);
		return all;
	}

protected:
	/* Not std::uniform_int_distribution: its numbers differ between libraries. */
	uint32_t random(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
	double fraction() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

	const Shape shape_;
	const uint32_t nr_intervals_;
	uint32_t interval_ = 0;

private:
	std::mt19937_64 random_;
};

/* A session decodes: reads a window behind its position and its first block, and grows. */
class Decode : public Arena {
public:
	explicit Decode(uint64_t seed) : Arena({1, 1024}, 20, seed) {}
	[[nodiscard]] std::vector<Run> before() const override
	{
		return in_all_heads(shape_, 0, 0, prompt);
	}
	Interval next() override
	{
		Interval now;
		const uint32_t end = prompt + grows * (interval_++ + 1);

		now.made = in_all_heads(shape_, 0, end - grows, grows);
		std::vector<Run> window = in_all_heads(shape_, 0, end - attends, attends);
		for (const Run &sink : in_all_heads(shape_, 0, 0, 1))
			window.push_back(sink);
		now.hot = blocks_of(window);
		sweep(now, now.hot);
		return now;
	}

private:
	static constexpr uint32_t prompt = 512, grows = 16, attends = 256; /* blocks of a head */
};

/* Block of rank r is read with probability ~ 1/r; ranks have nothing to do with addresses. */
class Zipf : public Arena {
public:
	Zipf(uint64_t seed, uint64_t hot_bytes)
	    : Arena({1, 1024}, 20, seed), by_rank_(shape_.nr_blocks())
	{
		std::iota(by_rank_.begin(), by_rank_.end(), 0);
		for (auto i = static_cast<uint32_t>(by_rank_.size()); i > 1; i--)
			std::swap(by_rank_[i - 1], by_rank_[random(i)]);
		double sum = 0;
		for (size_t r = 0; r < by_rank_.size(); r++)
			up_to_.push_back(sum += 1 / static_cast<double>(r + 1));
		best_.assign(by_rank_.begin(),
			     by_rank_.begin() +
				     static_cast<ptrdiff_t>(std::min<uint64_t>(
					     by_rank_.size(), hot_bytes / Shape::block_bytes)));
		std::sort(best_.begin(), best_.end());
	}
	Interval next() override
	{
		Interval now;

		for (uint32_t i = 0; i < reads_wanted; i++) {
			auto found = std::lower_bound(up_to_.begin(), up_to_.end(),
						      fraction() * up_to_.back());
			now.read.push_back(by_rank_[static_cast<size_t>(found - up_to_.begin())]);
			if ((i + 1) % (reads_wanted / steps_max) == 0)
				now.step_ends.push_back(i + 1);
		}
		now.hot = best_;
		return now;
	}

private:
	std::vector<uint32_t> by_rank_, best_;
	std::vector<double> up_to_; /* sum of the weights of the ranks so far */
};

/* The same few blocks of every head, somewhere in an arena of which nothing else is touched. */
class HotSet : public Arena {
public:
	HotSet(uint64_t seed, Shape shape, uint32_t blocks, uint32_t jump_every,
	       uint32_t nr_intervals)
	    : Arena(shape, nr_intervals, seed), blocks_(blocks), jump_every_(jump_every)
	{
	}
	Interval next() override
	{
		Interval now;

		if (interval_++ % jump_every_ == 0) {
			now.jumped = true;
			/* Not what was made first or last: who keeps that has not found it. */
			const uint32_t quarter = shape_.blocks_per_head / 4;
			set_ = blocks_of(
				in_all_heads(shape_, 0, quarter + random(2 * quarter), blocks_));
		}
		now.hot = set_;
		sweep(now, set_);
		return now;
	}

private:
	const uint32_t blocks_, jump_every_;
	std::vector<uint32_t> set_;
};

/* Two sessions, each with a hot set of its own; they take turns of some intervals. */
class Tenants : public Arena {
public:
	explicit Tenants(uint64_t seed) : Arena({2, 768}, 24, seed)
	{
		for (uint32_t slot = 0; slot < 2; slot++)
			sets_[slot] =
				blocks_of(in_all_heads(shape_, slot, 128 + random(256), attends));
	}
	Interval next() override
	{
		Interval now;

		now.slot = interval_ / turn % 2;
		now.jumped = interval_++ % turn == 0;
		now.hot = sets_[now.slot];
		sweep(now, now.hot);
		return now;
	}

private:
	static constexpr uint32_t turn = 8, attends = 256;
	std::vector<uint32_t> sets_[2];
};

/* A hot set, beside a reader that goes through everything once. */
class Scan : public Arena {
public:
	explicit Scan(uint64_t seed) : Arena({1, 2048}, 16, seed)
	{
		hot_ = blocks_of(in_all_heads(shape_, 0, 1024 + random(512), 128));
	}
	Interval next() override
	{
		Interval now;
		const uint32_t a_step = shape_.nr_blocks() / nr_intervals_ / steps;
		uint32_t scanned = interval_++ * steps * a_step;

		for (uint32_t s = 0; s < steps; s++) {
			now.read.insert(now.read.end(), hot_.begin(), hot_.end());
			for (uint32_t i = 0; i < a_step; i++)
				now.read.push_back(scanned++);
			now.step_ends.push_back(static_cast<uint32_t>(now.read.size()));
		}
		now.hot = hot_;
		return now;
	}

private:
	static constexpr uint32_t steps = 8;
	std::vector<uint32_t> hot_;
};

/* One session decodes; now and then another one writes a long prompt and reads it once. */
class PrefillBurst : public Arena {
public:
	explicit PrefillBurst(uint64_t seed) : Arena({2, 1024}, 20, seed)
	{
		hot_ = blocks_of(in_all_heads(shape_, 0, 256 + random(512), 128));
	}
	[[nodiscard]] std::vector<Run> before() const override
	{
		return in_all_heads(shape_, 0, 0, shape_.blocks_per_head);
	}
	Interval next() override
	{
		Interval now;

		now.hot = hot_;
		if (++interval_ % every == 0) {
			now.slot = 1;
			now.prefills = true;
			now.made =
				in_all_heads(shape_, 1, (interval_ / every - 1) * prompt, prompt);
			now.read = blocks_of(now.made);
		}
		sweep(now, hot_);
		return now;
	}

private:
	static constexpr uint32_t every = 5, prompt = 256;
	std::vector<uint32_t> hot_;
};

/* Nobody reads anything: nothing has to move, and nobody has to work. */
class Idle : public Arena {
public:
	explicit Idle(uint64_t seed) : Arena({1, 1024}, 10, seed) {}
	Interval next() override { return {}; }
};

template <typename T> std::unique_ptr<Pattern> make(uint64_t seed, uint64_t)
{
	return std::make_unique<T>(seed);
}

template <uint32_t arena_blocks, uint32_t blocks, uint32_t jump_every, uint32_t intervals>
std::unique_ptr<Pattern> make_hot_set(uint64_t seed, uint64_t)
{
	return std::make_unique<HotSet>(seed, Shape{1, arena_blocks}, blocks, jump_every,
					intervals);
}

} // namespace

const std::vector<PatternKind> &pattern_kinds()
{
	static const std::vector<PatternKind> kinds = {
		{"decode", "a window of 16 MiB that slides by 1 MiB an interval", true,
		 make<Decode>},
		{"zipf", "blocks of 64 MiB by 1/rank", true,
		 [](uint64_t seed, uint64_t hot_bytes) -> std::unique_ptr<Pattern> {
			 return std::make_unique<Zipf>(seed, hot_bytes);
		 }},
		{"hot-64K", "64 KiB of 256 MiB", true, make_hot_set<4096, 1, ~0u, 16>},
		{"hot-2M", "2 MiB of 256 MiB", true, make_hot_set<4096, 32, ~0u, 16>},
		{"jump", "8 MiB of 128 MiB, others after 8 intervals", false,
		 make_hot_set<2048, 128, 8, 24>},
		{"tenants", "16 MiB of each of two sessions, 8 intervals in turn", false,
		 make<Tenants>},
		{"scan", "8 MiB of 128 MiB, and all of it once", true, make<Scan>},
		{"prefill", "8 MiB of 64 MiB, and a prompt of 16 MiB each 5 intervals", true,
		 make<PrefillBurst>},
		{"idle", "64 MiB that nobody touches", true, make<Idle>},
	};
	return kinds;
}

} // namespace cxlkv::peers
