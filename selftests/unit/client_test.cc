// SPDX-License-Identifier: LGPL-2.1-or-later
/* libcxl_kv's connection: what open refuses, what a bad manager does to it, loss and return. No
 * root. */
#include "lib/client_fixture.h"

#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>

using namespace cxlkv;
using namespace std::chrono_literals;

namespace {

using Reply = FakeManager::Reply;
using Request = FakeManager::Request;

class ClientTest : public ClientFixture {
protected:
	/* Opens against a manager that answers every request with text. */
	int open_with(const std::string &text, bool hang_up = false)
	{
		FakeManager manager(socket_.path(), [&](Request &) {
			return Reply{.text = text, .hang_up = hang_up, .file = Fd{}};
		});
		return open();
	}
};

TEST_F(ClientTest, OpenWithoutSocketSaysSo)
{
	EXPECT_EQ(open(), -ENOENT);
	EXPECT_NE(messages().find(socket_.path()), std::string::npos);
	EXPECT_NE(messages().find("Is cxl-kvd running?"), std::string::npos) << messages();
}

TEST_F(ClientTest, OpenWithoutListenerIsRefused)
{
	{
		FakeManager manager(socket_.path(), FakeManager::agree);
	}
	EXPECT_EQ(open(), -ECONNREFUSED);
	EXPECT_NE(messages().find("Is cxl-kvd running?"), std::string::npos) << messages();
}

TEST_F(ClientTest, OnlyAMissingManagerIsAskedFor)
{
	for (const char *refusal : {"EINVAL", "ENOENT"}) {
		FakeManager manager(socket_.path(), [&](Request &request) {
			return FakeManager::error(request, refusal);
		});
		EXPECT_LT(open(), 0);
	}
	EXPECT_EQ(open_with("", true), -ENOTCONN);
	EXPECT_NE(messages().find(strerror(ENOTCONN)), std::string::npos) << messages();
	EXPECT_EQ(messages().find("no manager"), std::string::npos) << messages();
	EXPECT_EQ(messages().find("running?"), std::string::npos) << messages();
}

TEST_F(ClientTest, OpenChecksOptions)
{
	FakeManager manager(socket_.path(), FakeManager::agree);
	struct {
		cxl_kv_options known;
		char newer[8];
	} longer{options(), {}};
	cxl_kv_options with = options();
	const std::string long_path(200, 'x');

	with.size = 8;
	EXPECT_EQ(open(with), -EINVAL);
	with = options();
	with.elem_type = CXL_KV_ELEM_BF16 + 1;
	EXPECT_EQ(open(with), -EINVAL);
	with = options();
	with.on_manager_loss = 2;
	EXPECT_EQ(open(with), -EINVAL);
	with = options();
	with.socket_path = long_path.c_str();
	EXPECT_EQ(open(with), -ENAMETOOLONG);
	EXPECT_EQ(cxl_kv_open(nullptr, nullptr), -EINVAL);

	longer.known.size = sizeof(longer);
	longer.newer[7] = 1;
	EXPECT_EQ(cxl_kv_open(&longer.known, &kv_), -E2BIG);
	longer.newer[7] = 0;
	EXPECT_EQ(cxl_kv_open(&longer.known, &kv_), 0);
}

TEST_F(ClientTest, ANameNeedNotBeUtf8)
{
	std::string seen;
	FakeManager manager(socket_.path(), [&](Request &request) {
		seen = request.body.value("name", "");
		return FakeManager::agree(request);
	});
	const std::string cut = std::string(63, 'x') + "\u00e4";
	const std::pair<std::string, std::string> names[] = {
		{"k\u00f6ln \u20ac \U0001f600", "k\u00f6ln \u20ac \U0001f600"},
		{"a\xff"
		 "b\xe2\x82",
		 "a?b??"},
		{"\xc0\xaf \xe0\x80\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xf8", "?? ??? ??? ???? ?"},
		{cut, std::string(63, 'x') + "?"},
	};

	for (auto &[name, shown] : names) {
		cxl_kv_options with = options();
		with.name = name.c_str();
		ASSERT_EQ(open(with), 0) << messages();
		EXPECT_EQ(seen, shown);
		cxl_kv_close(std::exchange(kv_, nullptr));
	}
	cxl_kv_options with = options();
	with.tenant = "\xff";
	EXPECT_EQ(open(with), -EINVAL);
}

TEST_F(ClientTest, OpenTakesSocketFromEnvironment)
{
	FakeManager manager(socket_.path(), FakeManager::agree);

	setenv("CXL_KV_SOCKET", socket_.path().c_str(), 1);
	EXPECT_EQ(cxl_kv_open(nullptr, &kv_), 0);
	unsetenv("CXL_KV_SOCKET");
}

TEST_F(ClientTest, OpenRefusesAnotherVersion)
{
	FakeManager manager(socket_.path(), [](Request &request) {
		return FakeManager::ok(request, {{"version", CXL_KV_ABI_VERSION + 1}});
	});

	EXPECT_EQ(open(), -EPROTO);
	EXPECT_NE(messages().find("version " + std::to_string(CXL_KV_ABI_VERSION + 1)),
		  std::string::npos)
		<< messages();
}

TEST_F(ClientTest, OpenPassesTheManagersErrorOn)
{
	FakeManager manager(socket_.path(),
			    [](Request &request) { return FakeManager::error(request, "EACCES"); });

	EXPECT_EQ(open(), -EACCES);
	EXPECT_NE(messages().find("as the test asked"), std::string::npos) << messages();
}

TEST_F(ClientTest, OpenRefusesNonsense)
{
	for (const char *text : {
		     "garbage\n",
		     "\n",
		     "[1, 2]\n",
		     "{\"id\": 1, \"ok\": true} trailing\n",
		     "{\"ok\": true, \"version\": 1}\n",
		     "{\"id\": 99, \"ok\": true, \"version\": 1}\n",
		     "{\"id\": 1, \"ok\": true}\n",
		     "{\"id\": 1, \"ok\": false, \"version\": 1}\n",
		     "{\"id\": 1, \"version\": 1}\n",
		     "{\"id\": 1, \"error\": 5}\n",
		     "{\"id\": 1, \"error\": \"ENOSUCHTHING\"}\n",
	     }) {
		EXPECT_EQ(open_with(text), -EPROTO) << text;
	}
	EXPECT_EQ(open_with(std::string(70000, '[')), -EPROTO) << "a line without end";
	EXPECT_EQ(open_with(std::string(60000, '[') + "\n"), -EPROTO) << "deep nesting";
}

TEST_F(ClientTest, OpenNoticesHangUp)
{
	EXPECT_EQ(open_with("", true), -ENOTCONN);
	EXPECT_EQ(open_with("{\"id\": 1, \"ok\"", true), -ENOTCONN);
}

TEST_F(ClientTest, OpenClosesEveryFileItWasSent)
{
	auto nr_files = [] {
		return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
				     std::filesystem::directory_iterator{});
	};
	auto before = nr_files();
	{
		FakeManager manager(socket_.path(), [](Request &request) {
			Reply reply = FakeManager::agree(request);

			reply.file.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
			return reply;
		});

		ASSERT_EQ(open(), 0);
		cxl_kv_close(std::exchange(kv_, nullptr));
	}
	EXPECT_EQ(nr_files(), before);
}

TEST_F(ClientTest, ReconnectsAndSaysHelloAgain)
{
	std::atomic<int> nr_hellos{0};
	auto script = [&](Request &request) {
		nr_hellos += request.body["op"] == "hello";
		return FakeManager::agree(request);
	};
	auto manager = std::make_unique<FakeManager>(socket_.path(), script);

	ASSERT_EQ(open(), 0);
	EXPECT_EQ(cxl_kv_connected(kv_), 1);
	manager.reset();
	EXPECT_TRUE(eventually([&] { return !cxl_kv_connected(kv_); }));
	manager = std::make_unique<FakeManager>(socket_.path(), script);
	EXPECT_TRUE(eventually([&] { return cxl_kv_connected(kv_); }));
	EXPECT_EQ(nr_hellos, 2);
}

TEST_F(ClientTest, GarbageInMidConnectionMeansAnotherConnection)
{
	std::atomic<int> nr_hellos{0};
	FakeManager manager(socket_.path(), [&](Request &request) {
		nr_hellos += request.body["op"] == "hello";
		return FakeManager::agree(request);
	});

	ASSERT_EQ(open(), 0);
	manager.say("{\"id\": 12345, \"ok\": true}\n"); /* too late for somebody: no harm */
	manager.say("no json at all\n");
	EXPECT_TRUE(eventually([&] { return nr_hellos == 2 && cxl_kv_connected(kv_); }));
	manager.say("{\"id\": \"a string\"}\n");
	EXPECT_TRUE(eventually([&] { return nr_hellos == 3 && cxl_kv_connected(kv_); }));
}

TEST_F(ClientTest, AManagerThatHangsUpOnEachRequestIsNotAskedWithoutAPause)
{
	std::atomic<int> nr_hellos{0};
	FakeManager manager(socket_.path(), [&](Request &request) {
		if (request.body["op"] != "hello")
			return Reply{.text = "", .hang_up = true, .file = Fd{}};
		nr_hellos++;
		return FakeManager::agree(request);
	});
	ASSERT_EQ(open(), 0);
	cxl_kv_health health = {};
	health.size = sizeof(health);
	for (auto end = std::chrono::steady_clock::now() + 500ms;
	     std::chrono::steady_clock::now() < end;)
		EXPECT_EQ(cxl_kv_get_health(kv_, &health, 100), -ENOTCONN);
	EXPECT_LT(nr_hellos, 20);
}

TEST_F(ClientTest, CloseDoesNotWaitForALostManager)
{
	auto manager = std::make_unique<FakeManager>(socket_.path(), FakeManager::agree);

	ASSERT_EQ(open(), 0);
	manager.reset();
	EXPECT_TRUE(eventually([&] { return !cxl_kv_connected(kv_); }));
	auto begin = std::chrono::steady_clock::now();
	cxl_kv_close(std::exchange(kv_, nullptr));
	EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
}

TEST_F(ClientTest, CloseEndsAHelperWhoseManagerIsSilent)
{
	std::atomic<bool> silent{false};
	auto script = [&](Request &request) {
		return silent ? Reply{.text = "", .file = Fd{}} : FakeManager::agree(request);
	};
	auto manager = std::make_unique<FakeManager>(socket_.path(), script);

	ASSERT_EQ(open(), 0);
	silent = true;
	manager = nullptr;
	manager = std::make_unique<FakeManager>(socket_.path(), script);
	EXPECT_TRUE(eventually([&] { return !cxl_kv_connected(kv_); }));
	auto begin = std::chrono::steady_clock::now();
	cxl_kv_close(std::exchange(kv_, nullptr));
	EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
}

TEST_F(ClientTest, HelperTakesNoSignals)
{
	FakeManager manager(socket_.path(), FakeManager::agree);
	bool found = false;

	ASSERT_EQ(open(), 0);
	EXPECT_TRUE(eventually([&] {
		for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
			std::ifstream status(task.path() / "status");
			std::string name, line;

			std::getline(status, name);
			if (name != "Name:\tcxl_kv")
				continue;
			while (std::getline(status, line) && !line.starts_with("SigBlk:\t"))
				;
			/* All that can be blocked; 32 and 33 are glibc's own. */
			uint64_t open = ~std::stoull(line.substr(8), nullptr, 16);
			for (int signal : {SIGKILL, SIGSTOP, 32, 33})
				open &= ~(1ull << (signal - 1));
			EXPECT_EQ(open, 0u) << line;
			found = true;
		}
		return found;
	}));
}

TEST_F(ClientTest, ForkedChildIsRefused)
{
	FakeManager manager(socket_.path(), FakeManager::agree);
	const cxl_kv_geometry geometry{};
	cxl_kv_arena *arena;
	int status = 0;

	ASSERT_EQ(open(), 0);
	pid_t child = fork();
	if (!child) {
		bool refused = cxl_kv_arena_create(kv_, &geometry, nullptr, &arena) == -EPERM;

		refused = refused && !cxl_kv_connected(kv_);
		cxl_kv_close(kv_);
		_exit(refused ? 0 : 1);
	}
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_EQ(status, 0);
	EXPECT_EQ(cxl_kv_arena_create(kv_, &geometry, nullptr, &arena), -EINVAL);
	EXPECT_EQ(cxl_kv_connected(kv_), 1);
}

/* Every field of a geometry, one at a time made wrong. */
class GeometryTest : public ClientTest {
protected:
	static constexpr cxl_kv_geometry good{
		.nr_slots = 2,
		.nr_layers = 2,
		.nr_kv_heads = 2,
		.head_dim = 64,
		.elem_bytes = 2,
		.tokens_per_block = 16,
		.tokens_per_slot = 64,
		.block_bytes = 4096,
	};

	int create(const cxl_kv_geometry &geometry)
	{
		cxl_kv_arena *arena = nullptr;

		return cxl_kv_arena_create(kv_, &geometry, nullptr, &arena);
	}

	void refuses(uint32_t cxl_kv_geometry::*field, std::initializer_list<uint32_t> values)
	{
		for (uint32_t value : values) {
			cxl_kv_geometry geometry = good;

			geometry.*field = value;
			EXPECT_EQ(create(geometry), -EINVAL) << value;
		}
	}
};

TEST_F(GeometryTest, EachFieldIsChecked)
{
	FakeManager manager(socket_.path(), FakeManager::agree);

	ASSERT_EQ(open(), 0);
	refuses(&cxl_kv_geometry::nr_slots, {0, CXL_KV_MAX_SLOTS + 1, UINT32_MAX});
	refuses(&cxl_kv_geometry::nr_layers, {0, CXL_KV_MAX_LAYERS + 1, UINT32_MAX});
	refuses(&cxl_kv_geometry::nr_kv_heads, {0, CXL_KV_MAX_KV_HEADS + 1, UINT32_MAX});
	refuses(&cxl_kv_geometry::head_dim, {0, 65, 1u << 31, UINT32_MAX});
	refuses(&cxl_kv_geometry::elem_bytes, {0, 3, 4, 8, UINT32_MAX});
	refuses(&cxl_kv_geometry::tokens_per_block, {0, 17, 32, 1u << 31, UINT32_MAX});
	refuses(&cxl_kv_geometry::tokens_per_slot, {0, 15, 65, UINT32_MAX});
	refuses(&cxl_kv_geometry::block_bytes, {0, 2048, 4095, 4097, 12288, 4u << 20, 1u << 31});
}

TEST_F(GeometryTest, ProductsAreCheckedBeforeUse)
{
	FakeManager manager(socket_.path(), FakeManager::agree);
	cxl_kv_geometry geometry = good;

	ASSERT_EQ(open(), 0);
	/* 2^31 blocks, one more than 2^30, and 2^64, which wraps to none. */
	geometry.nr_slots = 2;
	geometry.nr_layers = geometry.nr_kv_heads = 1024;
	geometry.tokens_per_slot = 1024 * 16;
	EXPECT_EQ(create(geometry), -EINVAL);
	geometry = good;
	geometry.nr_slots = geometry.nr_layers = geometry.nr_kv_heads = 1;
	geometry.tokens_per_slot = ((1u << 30) + 1);
	geometry.tokens_per_block = 1;
	EXPECT_EQ(create(geometry), -EINVAL);
	geometry.nr_slots = 65536;
	geometry.nr_layers = geometry.nr_kv_heads = 1024;
	geometry.tokens_per_slot = 1u << 28;
	EXPECT_EQ(create(geometry), -EINVAL);
	/* 2 * T * D * elem_bytes = 2^64. */
	geometry = good;
	geometry.tokens_per_block = geometry.tokens_per_slot = 1u << 31;
	geometry.head_dim = 1u << 31;
	EXPECT_EQ(create(geometry), -EINVAL);
	EXPECT_EQ(cxl_kv_arena_create(kv_, nullptr, nullptr, nullptr), -EINVAL);
}

} // namespace
