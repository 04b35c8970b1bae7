/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cxl-kv record: what sessions of a running daemon need, as a trace for `cxl-kv sim`. */
#include "base/fd.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/control_client.h"
#include "cli/json_text.h"
#include "sim/att_writer.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace cxlkv {

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct RecordOptions {
	std::string file;
	bool att = false, quiet = false;
	uint64_t seconds = 0, count = 0, limit_MiB = 1024;

	[[nodiscard]] uint64_t limit_bytes() const { return limit_MiB << 20; }
};

/* Not with its own code: complain() would take a missing folder for a missing daemon. */
Error failed(const std::string &path)
{
	return error(EIO, path + ": " + strerror(errno));
}

/* Where events go: a file that is ours alone meanwhile, as two recordings would write over each
 * other. */
class Sink {
public:
	explicit Sink(std::string path) : path_(std::move(path)) {}
	virtual ~Sink() = default;
	/* The file is empty then. */
	virtual Result<> open()
	{
		/* Not blocking: a pipe that nobody reads would hold us with the signals blocked. */
		lock_ = Fd(
			::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
		if (!lock_)
			return failed(path_);
		if (flock(lock_.get(), LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
			return error(EIO, path_ + ": another cxl-kv record is writing it");
		std::ofstream file(path_, std::ios::trunc);
		return file ? ok() : failed(path_);
	}
	virtual Result<> take(const json &event) = 0;
	virtual Result<> close() = 0;
	[[nodiscard]] virtual uint64_t bytes() const = 0;
	[[nodiscard]] virtual std::string summary() const = 0;

	uint64_t nr = 0; /* requests, steps */

protected:
	const std::string path_;

private:
	Fd lock_;
};

/* Each line is written at once: whatever ends us, the file is good up to there. */
class RequestSink : public Sink {
public:
	using Sink::Sink;

	Result<> open() override
	{
		if (auto opened = Sink::open(); !opened)
			return opened;
		file_.open(path_);
		return file_ ? ok() : failed(path_);
	}
	Result<> take(const json &event) override
	{
		json line;
		for (const char *name :
		     {"timestamp", "input_length", "output_length", "block_tokens", "hash_ids"})
			line[name] = event.value(name, json());
		const std::string text = json_text(line) + "\n";
		if (!(file_ << text << std::flush)) {
			Error full = failed(path_);
			file_.close();
			std::error_code ec; /* half a line would make the others unreadable */
			std::filesystem::resize_file(path_, bytes_, ec);
			return full;
		}
		bytes_ += text.size();
		lines_.emplace_back(number_at(event, "/timestamp"), text.size());
		nr++;
		return ok();
	}
	/* Turns were reported when they ended; readers expect them by when they began. */
	Result<> close() override
	{
		file_.close();
		if (!file_)
			return error(EIO, path_ + ": cannot be written");
		return std::ranges::is_sorted(lines_, {}, &Line::first) ? ok() : sort();
	}
	[[nodiscard]] uint64_t bytes() const override { return bytes_; }
	[[nodiscard]] std::string summary() const override
	{
		return fmt::format("{} requests", nr);
	}

private:
	using Line = std::pair<uint64_t, size_t>; /* timestamp, bytes */

	Result<> sort()
	{
		std::vector<std::pair<uint64_t, std::string>> lines;
		std::ifstream in(path_);
		for (const auto &[timestamp, size] : lines_) {
			std::string text(size, '\0');
			in.read(text.data(), static_cast<std::streamsize>(size));
			lines.emplace_back(timestamp, std::move(text));
		}
		if (!in)
			return error(EIO, path_ + ": cannot be read again");
		std::ranges::stable_sort(lines, {}, &decltype(lines)::value_type::first);
		const std::string sorted = path_ + ".sorted";
		std::ofstream out(sorted, std::ios::trunc);
		for (const auto &[timestamp, text] : lines)
			out << text;
		out.close();
		if (!out || rename(sorted.c_str(), path_.c_str()))
			return error(EIO, sorted + ": cannot be written; " + path_ +
						  " is whole, in the order in which turns ended");
		return ok();
	}

	std::ofstream file_;
	uint64_t bytes_ = 0;
	std::vector<Line> lines_;
};

/* The format has a step of all heads in different places: it is written at the end. */
class AttSink : public Sink {
public:
	using Sink::Sink;

	Result<> take(const json &event) override
	{
		if (!writer_)
			if (auto begun = begin(event); !begun)
				return begun;
		const auto step = static_cast<uint32_t>(number_at(event, "/step"));
		for (const json &score : event.value("scores", json::array()))
			for (uint64_t i = 0; i < number_at(score, "/2"); i++)
				writer_->add(step, static_cast<uint32_t>(number_at(score, "/0")),
					     static_cast<uint32_t>(number_at(score, "/1") + i),
					     static_cast<float>(real_at(score, "/3") / 65535));
		nr = writer_->nr_reported();
		return ok();
	}
	Result<> close() override
	{
		return nr ? writer_->save(path_)
			  : error(ENODATA, "no session hinted attention; the file is empty");
	}
	[[nodiscard]] uint64_t bytes() const override
	{
		return writer_ ? writer_->file_bytes() : 0;
	}
	[[nodiscard]] std::string summary() const override
	{
		return fmt::format("attention of {} of {} steps", nr,
				   writer_ ? writer_->nr_steps() : 0);
	}

private:
	Result<> begin(const json &event)
	{
		auto list = ask_daemon({{"op", "list"}});
		if (!list)
			return list.error();
		for (const json &arena : list->value("arenas", json::array()))
			if (number_at(arena, "/arena") == number_at(event, "/arena")) {
				auto field = [&](const char *name) {
					return static_cast<uint32_t>(number_at(arena, name));
				};
				writer_.emplace(field("/layers"), field("/kv_heads"),
						std::max(1u, field("/tokens_per_block")));
				return ok();
			}
		return error(ESRCH, "the arena is gone again");
	}

	std::optional<sim::AttWriter> writer_;
};

/* Ctrl-C and the like end the recording, not the program. */
Fd stop_signals()
{
	sigset_t set;
	sigemptyset(&set);
	for (int signal : {SIGINT, SIGTERM, SIGHUP})
		sigaddset(&set, signal);
	sigprocmask(SIG_BLOCK, &set, nullptr);
	return Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

class Recording {
public:
	Recording(const RecordOptions &options, ControlClient &client, Sink &sink)
	    : options_(options), client_(client), sink_(sink), signals_(stop_signals())
	{
	}

	/* The daemon first: where it refuses, an older recording of that name stays. */
	Result<> begin()
	{
		auto begun = client_.call(
			{{"op", "record"}, {"what", options_.att ? "attention" : "requests"}});
		return begun ? sink_.open() : begun.error();
	}

	/* Until somebody or something ends it. */
	Result<> run()
	{
		constexpr int look_ms = 100;
		for (bool ending = false;;) {
			if (!ending && enough()) {
				if (auto sent = client_.send({{"op", "record_end"}}); !sent)
					return sent;
				ending = true;
			}
			show_progress();
			auto event = client_.next_event(ending ? end_ms : look_ms);
			if (!event && event.error().code == ETIMEDOUT && !ending)
				continue;
			if (!event)
				return event.error();
			const std::string kind = text_at(*event, "/event");
			if (kind == "end")
				return ok();
			if (kind.empty() || (ending && full()))
				continue;
			if (auto taken = sink_.take(*event); !taken)
				return taken;
		}
	}

private:
	static constexpr int end_ms = 10000;

	[[nodiscard]] bool full() const
	{
		return (options_.count && sink_.nr >= options_.count) ||
		       sink_.bytes() >= options_.limit_bytes();
	}
	[[nodiscard]] bool enough() const
	{
		signalfd_siginfo info{};
		return full() ||
		       (options_.seconds &&
			Clock::now() - begin_ >= std::chrono::seconds(options_.seconds)) ||
		       read(signals_.get(), &info, sizeof(info)) == sizeof(info);
	}
	void show_progress()
	{
		if (options_.quiet || !isatty(STDERR_FILENO) ||
		    Clock::now() - shown_ < std::chrono::seconds(1))
			return;
		shown_ = Clock::now();
		fmt::print(
			stderr, "\r\033[K{}, {:.1f} MiB, {} s; Ctrl-C ends it", sink_.summary(),
			double(sink_.bytes()) / (1 << 20),
			std::chrono::duration_cast<std::chrono::seconds>(shown_ - begin_).count());
	}

	const RecordOptions &options_;
	ControlClient &client_;
	Sink &sink_;
	Fd signals_;
	Clock::time_point begin_ = Clock::now(), shown_ = begin_;
};

int record(const RecordOptions &options, Sink &sink)
{
	auto client = ControlClient::connect();
	if (!client)
		return complain(client.error());
	Recording recording(options, *client, sink);
	if (auto begun = recording.begin(); !begun)
		return complain(begun.error());
	Result<> done = recording.run();
	if (!options.quiet && isatty(STDERR_FILENO))
		fmt::print(stderr, "\r\033[K");
	/* What came is kept, whatever ended it. */
	if (auto closed = sink.close(); !closed && done)
		return complain(closed.error());
	if (!options.quiet)
		fmt::print("{} in {}\n", sink.summary(), options.file);
	return done ? kExitOk : complain(done.error());
}

} // namespace

int cmd_record(int argc, char **argv)
{
	RecordOptions options;
	std::vector<std::string> words;
	Args args("record",
		  "Records what a running daemon sees, until Ctrl-C or a limit, for `cxl-kv sim`:\n"
		  "requests (turns of sessions) with the hashes of their blocks as Mooncake-style\n"
		  "JSON lines, or with --att the attention that one session reports. Root only.");
	args.words("FILE", words, 1, 1);
	args.flag(0, "att", options.att,
		  "attention masses of the first session that reports them, as .att");
	args.number('t', "time", "SECONDS", options.seconds, {1, 1e9}, "end after this time");
	args.number('n', "count", "N", options.count, {1, 1e12}, "end after N requests or steps");
	args.number('m', "limit", "MiB", options.limit_MiB, {1, 1 << 20},
		    "end when the file has this size (1024)");
	args.flag('q', "quiet", options.quiet, "no progress, no summary");
	if (auto exit = args.parse(argc, argv))
		return *exit;
	options.file = words[0];

	RequestSink requests(options.file);
	AttSink attention(options.file);
	return record(options, options.att ? static_cast<Sink &>(attention) : requests);
}

} // namespace cxlkv
