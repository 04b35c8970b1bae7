/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The command line: usage errors, exit statuses, units, and what people see of the daemon's
 * answers. */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/control_client.h"
#include "cli/status_view.h"
#include "cli/units.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>

using namespace cxlkv;
using nlohmann::json;

namespace {

int run(int (*command)(int, char **), std::vector<std::string> words)
{
	std::vector<char *> argv;
	for (std::string &word : words)
		argv.push_back(word.data());
	argv.push_back(nullptr);
	return command(static_cast<int>(words.size()), argv.data());
}

/* What a command printed, and its exit status. */
struct Ran {
	int exit;
	std::string out, err;
};

Ran capture(int (*command)(int, char **), std::vector<std::string> words)
{
	testing::internal::CaptureStdout();
	testing::internal::CaptureStderr();
	int exit = run(command, std::move(words));
	fflush(nullptr);
	std::string out = testing::internal::GetCapturedStdout();
	return {exit, out, testing::internal::GetCapturedStderr()};
}

/* Answers one connection's requests with the given lines, in order; "" hangs up. */
class OneShotServer {
public:
	explicit OneShotServer(std::vector<std::string> answers) : answers_(std::move(answers))
	{
		dir_ = testing::TempDir() + "cxl-kv-cli-XXXXXX";
		EXPECT_NE(mkdtemp(dir_.data()), nullptr);
		path_ = dir_ + "/socket";
		sockaddr_un address = {};
		address.sun_family = AF_UNIX;
		EXPECT_LT(path_.size(), sizeof(address.sun_path));
		memcpy(address.sun_path, path_.data(), path_.size());
		listener_ = Fd(socket(AF_UNIX, SOCK_STREAM, 0));
		EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr *>(&address),
			       sizeof(address)),
			  0);
		EXPECT_EQ(listen(listener_.get(), 1), 0);
		setenv("CXL_KV_SOCKET", path_.c_str(), 1);
		thread_ = std::thread([this] { serve(); });
	}
	~OneShotServer()
	{
		thread_.join();
		unlink(path_.c_str());
		rmdir(dir_.c_str());
		unsetenv("CXL_KV_SOCKET");
	}
	std::string request; /* the last one; valid once the server is gone */

private:
	void serve()
	{
		Fd peer(accept(listener_.get(), nullptr, nullptr));
		for (const std::string &answer : answers_) {
			char buffer[4096];
			ssize_t n = read(peer.get(), buffer, sizeof(buffer));
			if (n <= 0 || answer.empty())
				return;
			request.assign(buffer, static_cast<size_t>(n));
			/* In two pieces: the client has to put a line together. */
			std::string line = answer + "\n";
			EXPECT_EQ(send(peer.get(), line.data(), line.size() / 2, MSG_NOSIGNAL),
				  static_cast<ssize_t>(line.size() / 2));
			size_t rest = line.size() - line.size() / 2;
			EXPECT_EQ(
				send(peer.get(), line.data() + line.size() / 2, rest, MSG_NOSIGNAL),
				static_cast<ssize_t>(rest));
		}
	}

	std::vector<std::string> answers_;
	std::string dir_, path_;
	Fd listener_;
	std::thread thread_;
};

json example_status()
{
	return json::parse(
		R"({"version":"0.1.0","mode":"native","pid":4711,"uptime_s":3725,"preset":"adaptive",
	"tiers":{"hot":{"blocks":1234,"bytes":80871424,"limit_bytes":83886080,"nodes":[0]},
	"warm":{"blocks":0,"bytes":0,"limit_bytes":0,"nodes":[]},
	"cold":{"blocks":4096,"bytes":268435456,"limit_bytes":17179869184,"path":"/var/lib/cxl-kv/spill"}},
	"lost_blocks":2,"spill":{"spilled":9000,"spilled_bytes":589824000,"clean":10,"aborted":3,"failed":0,"refused":1},
	"restore":{"restored":4904,"restored_bytes":321388544,"demand":12,"p50_ns":148000,"p99_ns":900000,"lost":2},
	"wake":{"count":32,"p50_ns":3100000,"p99_ns":8200000},"faults":{"missing":12,"wp":4,"minor":0},
	"made":5330,"dropped":0,"no_room":0,
	"store":{"used_bytes":268435456,"capacity_bytes":17179869184,"checksum_failures":0,"io_errors":0,"no_space":0},
	"mover":{"promote":{"attempted":10,"moved":8,"failed":1,"skipped":1,"bytes":524288},
	"demote":{"attempted":0,"moved":0,"failed":0,"skipped":0,"bytes":0},"no_space":0},
	"sampling":{"source":"pmu","not_used":{"module":"not loaded"}},"arenas":1,
	"warnings":["kernel.numa_balancing is on"]})");
}

size_t widest(const std::string &text)
{
	size_t widest = 0;
	std::istringstream lines(text);
	for (std::string line; std::getline(lines, line);)
		widest = std::max(widest, columns(line));
	return widest;
}

} // namespace

TEST(Units, ThreeDigitsAndAUnit)
{
	EXPECT_EQ(human_bytes(0), "0 B");
	EXPECT_EQ(human_bytes(1023), "1023 B");
	EXPECT_EQ(human_bytes(1024), "1.00 KiB");
	EXPECT_EQ(human_bytes(1536), "1.50 KiB");
	EXPECT_EQ(human_bytes(24u << 20), "24.0 MiB");
	EXPECT_EQ(human_bytes((1u << 30) - 1), "1.00 GiB");
	EXPECT_EQ(human_bytes(UINT64_MAX), "16.0 EiB");
	EXPECT_EQ(human_ns(999), "999 ns");
	EXPECT_EQ(human_ns(148000), "148 µs");
	EXPECT_EQ(human_ns(999999), "1.00 ms");
	EXPECT_EQ(human_rate(12.5e6), "12.5 MB/s");
	EXPECT_EQ(human_count(999999), "999999");
	EXPECT_EQ(human_count(1234567), "1.23 M");
	EXPECT_EQ(human_duration(3725), "1 h 2 min");
	EXPECT_EQ(human_share(1, 0), "-");
	EXPECT_EQ(human_share(3, 4), "75 %");
}

TEST(Units, WidthsCountColumnsNotBytes)
{
	EXPECT_EQ(columns("1 µs"), 4u);
	EXPECT_EQ(right("1 µs", 6), "  1 µs");
	EXPECT_EQ(left("too long", 3), "too long");
}

TEST(Units, AClientsNameCannotSteerTheTerminal)
{
	EXPECT_EQ(printable("a\x1b[2Jb\n\xc3\xb6"), "a?[2Jb???");
}

TEST(Units, WrapBreaksBetweenWords)
{
	EXPECT_EQ(wrap("one two three", 7, 2), "one two\n  three\n");
	EXPECT_EQ(wrap("unbreakable", 4, 2), "unbreakable\n");
	EXPECT_EQ(wrap("µµ µµ", 5, 0), "µµ µµ\n");
}

TEST(Args, SetsWhatWasGiven)
{
	bool flag = false;
	double real = 0;
	uint64_t whole = 0;
	std::string text;
	std::vector<std::string> words;
	Args args("x", "y");
	args.flag('f', "flag", flag, "");
	args.number('r', "real", "N", real, {0, 10}, "");
	args.number(0, "whole", "N", whole, {1, 100}, "");
	args.text('t', "text", "T", text, "");
	args.words("FILE", words, 1, 2);
	auto parse = [&](std::vector<std::string> line) {
		std::vector<char *> argv;
		for (std::string &word : line)
			argv.push_back(word.data());
		argv.push_back(nullptr);
		return args.parse(static_cast<int>(line.size()), argv.data());
	};

	EXPECT_FALSE(parse({"x", "one", "-f", "--whole=7", "-r", "2.5", "--text", "abc", "two"}));
	EXPECT_TRUE(flag);
	EXPECT_EQ(whole, 7u);
	EXPECT_EQ(real, 2.5);
	EXPECT_EQ(text, "abc");
	EXPECT_EQ(words, (std::vector<std::string>{"one", "two"}));

	testing::internal::CaptureStderr();
	for (auto line : std::vector<std::vector<std::string>>{{"x"},
							       {"x", "a", "b", "c"},
							       {"x", "a", "-r"},
							       {"x", "a", "-r", "11"},
							       {"x", "a", "-r", "1x"},
							       {"x", "a", "-r", "nan"},
							       {"x", "a", "--whole", "0"},
							       {"x", "a", "--whole", "1.5"},
							       {"x", "a", "--text", ""},
							       {"x", "a", "-q"},
							       {"x", "a", "--flag=1"},
							       {"x", "a", "--quux"}})
		EXPECT_EQ(parse(line), std::optional<int>(kExitUsage)) << line.back();
	std::string said = testing::internal::GetCapturedStderr();
	EXPECT_NE(said.find("--whole 1.5: it takes a whole number from 1 to 100"),
		  std::string::npos)
		<< said;
	EXPECT_NE(said.find("FILE is missing"), std::string::npos) << said;
	EXPECT_NE(said.find("no option -q"), std::string::npos) << said;
	EXPECT_NE(said.find("no option --quux"), std::string::npos) << said;
	EXPECT_NE(said.find("-r needs a value"), std::string::npos) << said;
}

TEST(Cli, NoDaemonIsExitThreeAndSaysHowToStartIt)
{
	setenv("CXL_KV_SOCKET", "/nowhere/control.sock", 1);
	for (auto command : {cmd_status, cmd_list}) {
		Ran ran = capture(command, {"command"});
		EXPECT_EQ(ran.exit, kExitNoDaemon);
		EXPECT_EQ(ran.out, "");
		EXPECT_NE(ran.err.find("/nowhere/control.sock"), std::string::npos) << ran.err;
		EXPECT_NE(ran.err.find("`cxl-kvd --config FILE`"), std::string::npos) << ran.err;
	}
	unsetenv("CXL_KV_SOCKET");
}

TEST(Cli, OnlyAServiceThatIsInstalledIsToBeStarted)
{
	const std::string root = testing::TempDir() + "cxl-kv-units";
	const std::string units = root + "/usr/local/lib/systemd/system";
	std::filesystem::create_directories(units);
	EXPECT_FALSE(service_installed(Host(root)));
	std::ofstream(units + "/cxl-kvd.service") << "[Unit]\n";
	EXPECT_TRUE(service_installed(Host(root)));
	std::filesystem::remove_all(root);

	setenv("CXL_KV_SOCKET", "/nowhere/control.sock", 1);
	const bool here = service_installed(Host());
	for (const Ran &ran : {capture(cmd_status, {"status"}), capture(cmd_doctor, {"doctor"})}) {
		const std::string said = ran.out + ran.err;
		EXPECT_EQ(said.find("systemctl start cxl-kvd") != std::string::npos, here) << said;
		EXPECT_EQ(said.find("not installed as a service") != std::string::npos, !here)
			<< said;
	}
	unsetenv("CXL_KV_SOCKET");
}

TEST(Cli, ASocketsPathThatIsTooLongIsToldTheLimit)
{
	setenv("CXL_KV_SOCKET", ("/tmp/" + std::string(103, 'x')).c_str(), 1);
	Ran ran = capture(cmd_status, {"status"});
	EXPECT_EQ(ran.exit, kExitFailure);
	EXPECT_NE(ran.err.find("up to 107 bytes"), std::string::npos) << ran.err;
	unsetenv("CXL_KV_SOCKET");
}

TEST(Cli, HangUpAndGarbageAndRefusal)
{
	{
		OneShotServer server({""});
		EXPECT_EQ(capture(cmd_status, {"status"}).exit, kExitNoDaemon);
	}
	{
		OneShotServer server({"no json"});
		EXPECT_EQ(capture(cmd_status, {"status"}).exit, kExitFailure);
	}
	OneShotServer server({R"({"id":1,"error":"EPERM","message":"only root may ask"})"});
	Ran ran = capture(cmd_status, {"status"});
	EXPECT_EQ(ran.exit, kExitFailure);
	EXPECT_NE(ran.err.find("only root may ask"), std::string::npos) << ran.err;
}

TEST(Status, FitsOneScreenAndSaysWhatMatters)
{
	std::string text = status_text(example_status());

	EXPECT_LE(widest(text), 80u) << text;
	EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 24) << text;
	for (const char *part :
	     {"pid 4711", "1 h 2 min", "77.1 MiB", "96 %", "/var/lib/cxl-kv/spill", "p50 148 µs",
	      "10 attempted = 8 moved + 1 failed + 1 skipped", "kernel.numa_balancing is on",
	      "sampling: pmu", "  not module: not loaded", "warm  none"})
		EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Status, WhatAnOperatorSwitchedOffIsSaid)
{
	json status = example_status();
	EXPECT_EQ(status_text(status).find("draining"), std::string::npos);
	status["draining"] = {{"warm", false}, {"cold", true}};
	status["health"] = {{"frozen", true}};
	std::string text = status_text(status);

	EXPECT_NE(text.find("draining: cold, until `cxl-kv drain --undo cold`"), std::string::npos)
		<< text;
	EXPECT_EQ(text.find("draining: warm"), std::string::npos) << text;
	EXPECT_NE(text.find("daemon.enabled is false"), std::string::npos) << text;
}

TEST(Status, ASamplerThatIsBlindOnACpuShows)
{
	json status = example_status();
	status["sampling"]["by_cpu"] =
		json::parse(R"([{"events":10,"lost":1,"throttled":0},{"events":0},
				{"events":700,"lost":2,"throttled":4}])");
	std::string text = status_text(status);

	EXPECT_NE(text.find("  710 samples, 3 lost, 4 times throttled; most on CPU 2: 700, fewest "
			    "on CPU 1: 0\n"),
		  std::string::npos)
		<< text;
	EXPECT_LE(widest(text), 80u);
}

TEST(Status, LatencyOfTheNodesAsMeasured)
{
	json status = example_status();
	EXPECT_EQ(status_text(status).find("latency"), std::string::npos);
	status["mover"]["latency_gate"]["nodes"] =
		json::parse(R"([{"node":0,"ns":412.4,"open":false},{"node":2,"ns":251,"open":true},
				{"node":3,"ns":0,"open":true}])");

	EXPECT_NE(status_text(status).find("latency  node 0 412 ns (no promotions), node 2 251 "
					   "ns\n"),
		  std::string::npos)
		<< status_text(status);
}

TEST(Arenas, AnEnginesComesBeforeTheDaemonsOwn)
{
	const json status = {{"pid", 77}};
	const json list = json::parse(R"({"arenas":[{"arena":2,"pid":77},{"arena":3,"pid":88},
		{"arena":5,"pid":99}]})");

	EXPECT_EQ(pick_arena(list, 0, status)["arena"], 3);
	EXPECT_EQ(pick_arena(list, 2, status)["arena"], 2);
	EXPECT_EQ(pick_arena(list, 5, status)["arena"], 5);
	EXPECT_TRUE(pick_arena(list, 4, status).is_null());
	EXPECT_EQ(
		pick_arena(json::parse(R"({"arenas":[{"arena":2,"pid":77}]})"), 0, status)["arena"],
		2);
	for (const char *odd : {"null", "[]", R"({"arenas":{}})", R"({"arenas":[]})"})
		EXPECT_TRUE(pick_arena(json::parse(odd), 0, status).is_null()) << odd;
}

TEST(Status, AnswerOfAnotherShapeIsNoCrash)
{
	for (const char *odd : {"{}", R"({"tiers":5})", R"({"tiers":{"hot":[]}})",
				R"({"tiers":{"hot":{"bytes":"x"}}})", R"({"warnings":[1]})",
				R"({"spill":[1,2]})", R"({"draining":[1],"health":7})"})
		EXPECT_FALSE(status_text(json::parse(odd)).empty()) << odd;
}

TEST(Status, JsonIsTheDaemonsAnswer)
{
	json answer = example_status();
	answer["id"] = 1;
	answer["ok"] = true;
	OneShotServer server({answer.dump()});
	Ran ran = capture(cmd_status, {"status", "-j"});
	EXPECT_EQ(ran.exit, kExitOk) << ran.err;
	EXPECT_EQ(json::parse(ran.out), example_status());
}

TEST(Doctor, JsonOfAPathThatIsNoUtf8)
{
	setenv("CXL_KV_SOCKET", "/nowhere/socket", 1);
	Ran ran = capture(cmd_doctor, {"doctor", "-j", "--spill", "/nowhere/\xff/spill"});
	unsetenv("CXL_KV_SOCKET");
	EXPECT_TRUE(json::accept(ran.out)) << ran.out;
	EXPECT_NE(ran.out.find("/nowhere/\ufffd/spill"), std::string::npos) << ran.out;
}

TEST(List, OneLineAnArena)
{
	json answer = json::parse(
		R"({"id":1,"ok":true,"arenas":[{"arena":1,"name":"kv-engine-of-a-long-name","pid":4711,
	"slots":32,"layers":80,"kv_heads":8,"head_dim":32,"elem_bytes":2,"tokens_per_block":32,"block_bytes":4096,
	"bytes":{"hot":25165824,"warm":0,"cold":75497472,"lost":0},"hints":10,"bad_hints":0}]})");
	OneShotServer server({answer.dump()});
	Ran ran = capture(cmd_list, {"list"});
	EXPECT_EQ(ran.exit, kExitOk) << ran.err;
	EXPECT_LE(widest(ran.out), 80u) << ran.out;
	for (const char *part :
	     {"kv-engine-of-a", "4711", "80x8", "4.00 KiB", "24.0 MiB", "72.0 MiB"})
		EXPECT_NE(ran.out.find(part), std::string::npos) << part << "\n" << ran.out;
}

TEST(List, NoArenaIsSaidInWords)
{
	OneShotServer server({R"({"id":1,"ok":true,"arenas":[]})"});
	Ran ran = capture(cmd_list, {"list"});
	EXPECT_EQ(ran.exit, kExitOk);
	EXPECT_NE(ran.out.find("no arena"), std::string::npos);
}
