/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/run.h"
#include "engine/replay.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <sys/resource.h>
#include <thread>

namespace cxlkv::engine {

namespace {

using Clock = std::chrono::steady_clock;

uint64_t page_faults()
{
	rusage usage{};
	getrusage(RUSAGE_SELF, &usage);
	return static_cast<uint64_t>(usage.ru_minflt + usage.ru_majflt);
}

double per_second(uint64_t n, uint64_t ns)
{
	return ns ? static_cast<double>(n) * 1e9 / static_cast<double>(ns) : 0;
}

double hit_share(const KvStats &kv)
{
	return kv.nr_leased_blocks
		       ? static_cast<double>(kv.nr_hits) / static_cast<double>(kv.nr_leased_blocks)
		       : 0;
}

/* Of the tokens that had to be computed or had from others. */
double reuse_share(const Counters &c)
{
	const uint64_t all = c.nr_reused + c.nr_prefilled;

	return all ? static_cast<double>(c.nr_reused) / static_cast<double>(all) : 0;
}

/* Nearest rank; 0 of nothing. */
double percentile_ms(std::vector<uint64_t> ns, double p)
{
	if (ns.empty())
		return 0;
	auto rank = static_cast<size_t>(p * static_cast<double>(ns.size() - 1) + 0.5);
	std::nth_element(ns.begin(), ns.begin() + static_cast<ptrdiff_t>(rank), ns.end());
	return static_cast<double>(ns[rank]) / 1e6;
}

class Progress {
public:
	explicit Progress(size_t nr_turns) : nr_turns_(nr_turns) {}

	void show(size_t turn, const Counters &counters, const KvStats &kv)
	{
		if (Clock::now() < next_)
			return;
		next_ = Clock::now() + std::chrono::seconds(1);
		fmt::print(stderr, "engine: turn {}/{}  {} tokens", turn, nr_turns_,
			   counters.nr_prefilled + counters.nr_decoded);
		if (kv.nr_leases)
			fmt::print(stderr, "  hit share {:.4f}  recomputed {}", hit_share(kv),
				   counters.nr_recomputed);
		fmt::print(stderr, "\n");
	}

private:
	size_t nr_turns_;
	Clock::time_point next_ = Clock::now() + std::chrono::seconds(1);
};

Result<std::unique_ptr<KvMemory>> make_memory(const RunOptions &options, const KvShape &shape)
{
	if (options.arena)
		return make_arena_memory(shape, options.workload.conversations,
					 options.arena_settings);
	return make_plain_memory(shape, options.workload.conversations);
}

Result<> record_all(std::deque<Conversation> &conversations, RunResult *result)
{
	for (Conversation &c : conversations) {
		Result<std::vector<uint64_t>> kv = c.digest();
		if (!kv)
			return kv.error().in("read the KV cache back at the end");
		result->records.push_back({c.tokens(), std::move(*kv)});
	}
	return ok();
}

using Serve = std::function<Result<>(const Turn &)>;

Result<> serve_in_turn(const std::vector<Turn> &turns, const Serve &serve)
{
	for (const Turn &turn : turns)
		if (Result<> r = serve(turn); !r)
			return r;
	return ok();
}

/* Nobody is served before his time; who comes while another is served waits. */
Result<> serve_after_gaps(Schedule schedule, const Serve &serve)
{
	const auto start = Clock::now();
	auto now_ms = [&] {
		return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
	};

	while (!schedule.empty()) {
		const double early_ms = schedule.due_ms() - now_ms();
		if (early_ms > 0)
			std::this_thread::sleep_for(
				std::chrono::duration<double, std::milli>(early_ms));
		const Turn turn = schedule.take();
		if (Result<> r = serve(turn); !r)
			return r;
		schedule.ended(turn, now_ms());
	}
	return ok();
}

Result<Pace> pace_of(const RunOptions &options)
{
	if (!options.replay_file.empty())
		return read_pace(options.workload, options.replay_file);
	if (options.gaps_file.empty())
		return even_pace(options.workload);
	Result<Gaps> gaps = Gaps::read(options.gaps_file);
	if (!gaps)
		return gaps.error();
	return drawn_pace(options.workload, *gaps);
}

Result<std::unique_ptr<PrefixStore>> make_prefixes(const RunOptions &options, const Model &model,
						   const KvShape &shape)
{
	if (!options.reuse)
		return std::unique_ptr<PrefixStore>();
	return open_prefix_store(model, shape, options.arena_settings.socket);
}

/* What the user says in a turn. */
std::vector<uint8_t> said_in(const Turn &turn, const Text &text)
{
	const auto prompt = std::span(text).subspan(turn.prompt_offset, turn.prompt_bytes),
		   own = std::span(text).subspan(turn.text_offset, turn.text_bytes);
	std::vector<uint8_t> said(prompt.begin(), prompt.end());

	said.insert(said.end(), own.begin(), own.end());
	return said;
}

} // namespace

Result<RunResult> run(const RunOptions &options, const Model &model, const Text &text)
{
	const uint32_t per_block = options.tokens_per_block;
	if (!per_block || !options.score_every)
		return error(EINVAL, "--tokens-per-block and --score-every begin at 1");
	if (options.reuse && !options.arena)
		return error(EINVAL, "--reuse needs --memory arena");
	Result<Pace> pace = pace_of(options);
	if (!pace)
		return pace.error();
	Result<std::vector<Turn>> turns = plan_turns(options.workload, text.size(), *pace);
	if (!turns)
		return turns.error();
	Result<KvShape> shape =
		KvShape::create(model.shape, per_block, options.workload.context, options.kv_type);
	if (!shape)
		return shape.error();
	Result<std::unique_ptr<KvMemory>> memory = make_memory(options, *shape);
	if (!memory)
		return memory.error();
	Result<std::unique_ptr<PrefixStore>> prefixes = make_prefixes(options, model, *shape);
	if (!prefixes)
		return prefixes.error();

	RunResult result;
	Decoder decoder(model, *shape);
	std::deque<Conversation> conversations;
	for (uint32_t c = 0; c < options.workload.conversations; c++)
		conversations.emplace_back(
			c, *shape, decoder, **memory, result.counters,
			ConversationOptions{options.score_every, options.decide, prefixes->get()});

	const auto start = Clock::now();
	const uint64_t faults = page_faults();
	Progress progress(turns->size());
	size_t nr_served = 0;
	auto serve = [&](const Turn &t) -> Result<> {
		nr_served++;
		if (Result<> r = conversations[t.conversation].turn(said_in(t, text), t.reply); !r)
			return r.error().in(fmt::format("turn {} of {}", nr_served, turns->size()));
		progress.show(nr_served, result.counters, (*memory)->stats());
		return ok();
	};
	const bool waits = !options.gaps_file.empty() || !options.replay_file.empty();
	Result<> served =
		waits ? serve_after_gaps(Schedule(*turns, options.workload, options.gap_scale),
					 serve)
		      : serve_in_turn(*turns, serve);
	if (!served)
		return served.error();
	if (Result<> r = record_all(conversations, &result); !r)
		return r.error();
	result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
	result.nr_page_faults = page_faults() - faults;
	result.kv = (*memory)->stats();
	if (*prefixes)
		result.prefixes = (*prefixes)->stats();
	for (const Record &r : result.records)
		result.kv_blocks += r.kv.size();
	result.kv_bytes = result.kv_blocks * shape->block_bytes();
	return result;
}

std::string summary_json(const RunResult &r)
{
	const Counters &c = r.counters;
	nlohmann::ordered_json j;

	j["conversations"] = r.records.size();
	j["seconds"] = r.seconds;
	j["tokens_prefilled"] = c.nr_prefilled;
	j["tokens_decoded"] = c.nr_decoded;
	j["tokens_per_s"] =
		static_cast<double>(c.nr_prefilled + c.nr_decoded) / std::max(r.seconds, 1e-9);
	j["prefill_tokens_per_s"] = per_second(c.nr_prefilled, c.prefill_ns);
	j["decode_tokens_per_s"] = per_second(c.nr_decoded, c.decode_ns);
	j["kv_blocks"] = r.kv_blocks;
	j["kv_bytes"] = r.kv_bytes;
	j["leases"] = r.kv.nr_leases;
	j["leased_blocks"] = r.kv.nr_leased_blocks;
	j["hits"] = r.kv.nr_hits;
	j["hit_share"] = hit_share(r.kv);
	j["hints_dropped"] = r.kv.nr_hints_dropped;
	j["recomputed"] = c.nr_recomputed;
	j["late"] = c.nr_late;
	j["chose_to_recompute"] = c.nr_chosen;
	j["tokens_reused"] = c.nr_reused;
	j["reuse_share"] = reuse_share(c);
	j["prefix_lookups"] = r.prefixes.nr_lookups;
	j["prefixes_found"] = r.prefixes.nr_found;
	j["prefix_blocks_stored"] = r.prefixes.nr_stored;
	j["prefix_blocks_failed"] = r.prefixes.nr_failed;
	j["page_faults"] = r.nr_page_faults;
	j["wakes"] = c.wake_ns.size();
	j["wake_p50_ms"] = percentile_ms(c.wake_ns, 0.5);
	j["wake_p99_ms"] = percentile_ms(c.wake_ns, 0.99);
	return j.dump();
}

std::string summary_text(const RunResult &r)
{
	const Counters &c = r.counters;

	std::string text = fmt::format(
		"{} conversations, {} tokens prefilled ({:.0f}/s), {} decoded ({:.0f}/s), {:.1f} "
		"s\n"
		"KV cache: {} blocks, {:.1f} MB, {} page faults",
		r.records.size(), c.nr_prefilled, per_second(c.nr_prefilled, c.prefill_ns),
		c.nr_decoded, per_second(c.nr_decoded, c.decode_ns), r.seconds, r.kv_blocks,
		static_cast<double>(r.kv_bytes) / 1e6, r.nr_page_faults);
	if (r.kv.nr_leases)
		text += fmt::format("\n{} leases of {} blocks, hit share {:.4f}, {} hints dropped\n"
				    "wake to leased: p50 {:.2f} ms, p99 {:.2f} ms ({} wakes)\n"
				    "recomputed: {} lost, {} late, {} sooner than fetched",
				    r.kv.nr_leases, r.kv.nr_leased_blocks, hit_share(r.kv),
				    r.kv.nr_hints_dropped, percentile_ms(c.wake_ns, 0.5),
				    percentile_ms(c.wake_ns, 0.99), c.wake_ns.size(),
				    c.nr_recomputed, c.nr_late, c.nr_chosen);
	if (r.prefixes.nr_lookups)
		text += fmt::format(
			"\nreused {} tokens that others computed ({:.1f} % of the prefill); {} of "
			"{} beginnings found, {} blocks stored, {} failed",
			c.nr_reused, 100 * reuse_share(c), r.prefixes.nr_found,
			r.prefixes.nr_lookups, r.prefixes.nr_stored, r.prefixes.nr_failed);
	return text;
}

} // namespace cxlkv::engine
