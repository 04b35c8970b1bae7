// SPDX-License-Identifier: LGPL-2.1-or-later
/* libcxl_kv's arenas against a manager that the test plays: what is registered, destroyed,
 * inherited. */
#include "lib/client_arena_fixture.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/wait.h>

using namespace cxlkv;

namespace {

TEST_F(ArenaTest, RegistersSealedFilesOfTheRightSizes)
{
	const std::vector<uint32_t> window{0, 64};
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

	ASSERT_EQ(open(), 0);
	ASSERT_EQ(cxl_kv_arena_create(kv_, &geometry, window.data(), &arena_), 0) << messages();
	const Registered &arena = registered_.at(0);
	ASSERT_EQ(arena.files.size(), 4u);
	auto bytes = [&](size_t file) {
		struct stat st {};
		fstat(arena.files[file].get(), &st);
		return static_cast<uint64_t>(st.st_size);
	};
	EXPECT_EQ(bytes(0), uint64_t{nr_blocks} * 4096);
	EXPECT_EQ(bytes(2), uint64_t{nr_blocks} * 8);
	EXPECT_EQ(bytes(3), 4096 + arena.body["ring_entries"].get<uint64_t>() * 32);
	for (size_t file : {0, 2, 3})
		EXPECT_EQ(fcntl(arena.files[file].get(), F_GET_SEALS), seals) << file;
	char link[64] = {};
	std::string self = "/proc/self/fd/" + std::to_string(arena.files[1].get());
	ASSERT_GT(readlink(self.c_str(), link, sizeof(link) - 1), 0);
	EXPECT_STREQ(link, "anon_inode:[userfaultfd]");

	EXPECT_EQ(arena.body["geometry"]["block_bytes"], 4096);
	EXPECT_EQ(arena.body["geometry"].size(), 8u);
	EXPECT_EQ(arena.body["layer_window"], (json{0, 64}));
	EXPECT_FALSE(arena.body.contains("key"));
	EXPECT_EQ(arena.body["base"],
		  std::to_string(reinterpret_cast<uintptr_t>(cxl_kv_arena_base(arena_))));
	EXPECT_EQ(ring()->nr_entries, arena.body["ring_entries"]);
}

TEST_F(ArenaTest, AddressesFollowTheBlockIndex)
{
	create();
	char *base = static_cast<char *>(cxl_kv_arena_base(arena_));

	EXPECT_EQ(cxl_kv_block(arena_, 0, 0, 0), base);
	EXPECT_EQ(cxl_kv_block(arena_, 1, 2, 3), base + ((1 * 4 + 2) * 8 + 3) * 4096);
	EXPECT_EQ(cxl_kv_block(arena_, 2, 0, 0), nullptr);
	EXPECT_EQ(cxl_kv_block(arena_, 0, 4, 0), nullptr);
	EXPECT_EQ(cxl_kv_block(arena_, 0, 0, 8), nullptr);
	set_states((1 * 4 + 2) * 8 + 3, 1, CXL_KV_COLD);
	EXPECT_EQ(cxl_kv_block_word(arena_, 1, 2, 3) & CXL_KV_WORD_STATE_MASK, CXL_KV_COLD);
	EXPECT_EQ(cxl_kv_block_word(arena_, 9, 0, 0), 0u);
}

TEST_F(ArenaTest, RefusedOrStrangeRegistrationIsAnErrorAndLeavesNothing)
{
	ASSERT_EQ(open(), 0);
	manager_.reset();
	for (const auto &[fields, error] : std::vector<std::pair<json, int>>{
		     {{{"error", "EPERM"}}, -EPERM},
		     {{{"ok", true}, {"key", "1"}}, -EPROTO},
		     {{{"ok", true}, {"arena", -1}, {"key", "1"}}, -EPROTO},
		     {{{"ok", true}, {"arena", 1ull << 32}, {"key", "1"}}, -EPROTO},
		     {{{"ok", true}, {"arena", "1"}, {"key", "1"}}, -EPROTO},
		     {{{"ok", true}, {"arena", 1}}, -EPROTO},
		     {{{"ok", true}, {"arena", 1}, {"key", 1}}, -EPROTO},
		     {{{"ok", true}, {"arena", 1}, {"key", "0"}}, -EPROTO},
		     {{{"ok", true}, {"arena", 1}, {"key", "-1"}}, -EPROTO},
		     {{{"ok", true}, {"arena", 1}, {"key", "18446744073709551616"}}, -EPROTO},
		     {{{"ok", true}, {"arena", 1}, {"key", "12x"}}, -EPROTO},
	     }) {
		FakeManager manager(socket_.path(), [&](Request &request) {
			json answer = fields;

			if (request.body["op"] == "hello")
				return FakeManager::agree(request);
			answer["id"] = request.body["id"];
			return Reply{.text = answer.dump() + "\n", .file = Fd{}};
		});
		EXPECT_EQ(cxl_kv_arena_create(kv_, &geometry, nullptr, &arena_), error) << fields;
		EXPECT_EQ(arena_, nullptr);
	}
}

TEST_F(ArenaTest, DestroyUnregistersAndUnmaps)
{
	create();
	void *base = cxl_kv_arena_base(arena_);
	unsigned char present;

	EXPECT_EQ(mincore(base, 4096, &present), 0);
	cxl_kv_arena_destroy(std::exchange(arena_, nullptr));
	EXPECT_EQ(last_request()["op"], "unregister");
	EXPECT_EQ(last_request()["arena"], 1);
	EXPECT_EQ(mincore(base, 4096, &present), -1);
	/* A new manager does not hear of it any more. */
	manager_.reset();
	EXPECT_TRUE(eventually([&] { return !cxl_kv_connected(kv_); }));
	start();
	ASSERT_TRUE(eventually([&] { return cxl_kv_connected(kv_); }));
	EXPECT_EQ(registered_.size(), 1u);
}

TEST_F(ArenaTest, ForkedChildHasNeitherMemoryNorCalls)
{
	const cxl_kv_range range{0, 0, 0, 1};
	int status = 0;

	create();
	set_states(0, nr_blocks, CXL_KV_RESIDENT);
	size_t before = nr_requests();
	pid_t child = fork();
	if (!child) {
		unsigned char present;
		int wrong = 0;

		wrong |= (cxl_kv_lease(arena_, &range, 1, 0, nullptr) != -EPERM) << 0;
		wrong |= (cxl_kv_hint_position(arena_, 0, 0) != -EPERM) << 1;
		wrong |= (cxl_kv_session_open(arena_, 0, nullptr) != -EPERM) << 2;
		wrong |= (cxl_kv_block(arena_, 0, 0, 0) != nullptr) << 3;
		wrong |= (cxl_kv_block_word(arena_, 0, 0, 0) != 0) << 4;
		wrong |= (mincore(cxl_kv_arena_base(arena_), 4096, &present) != -1) << 5;
		cxl_kv_close(kv_);
		_exit(wrong);
	}
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_EQ(status, 0);
	EXPECT_EQ(nr_requests(), before) << "the child's close told the manager something";
	EXPECT_EQ(cxl_kv_lease(arena_, &range, 1, 0, nullptr), 0);
	EXPECT_EQ(cxl_kv_session_park(arena_, 0), 0);
}

/* Runs in a child that has given its rights away, with the device file from the manager or without.
 */
int open_and_create_as_nobody(const cxl_kv_options &options)
{
	cxl_kv *kv;
	cxl_kv_arena *arena;
	int status = 0;

	pid_t child = fork();
	if (!child) {
		if (setgroups(0, nullptr) || setresgid(65534, 65534, 65534) ||
		    setresuid(65534, 65534, 65534))
			_exit(100);
		int rc = cxl_kv_open(&options, &kv);
		if (!rc)
			rc = cxl_kv_arena_create(kv, &geometry, nullptr, &arena);
		_exit(-rc);
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? -WEXITSTATUS(status) : status;
}

TEST_F(ArenaTest, UnprivilegedClientUsesTheManagersDevice)
{
	/* The manager may look at it until the fixture ends it. */
	auto with_device = std::make_shared<std::atomic<bool>>(true);
	cxl_kv_options with = options();

	if (geteuid() != 0 || access("/dev/userfaultfd", R_OK | W_OK))
		GTEST_SKIP() << "needs root and /dev/userfaultfd";
	with.log = [](void *, const char *) {};
	manager_ = nullptr;
	manager_ = std::make_unique<FakeManager>(
		socket_.path(), [this, with_device](Request &request) {
			Reply reply = serve(request);

			if (request.body["op"] == "hello" && *with_device)
				reply.file.reset(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
			return reply;
		});
	ASSERT_EQ(chmod(socket_.path().substr(0, socket_.path().rfind('/')).c_str(), 0755), 0);
	ASSERT_EQ(chmod(socket_.path().c_str(), 0666), 0);
	EXPECT_EQ(open_and_create_as_nobody(with), 0);
	*with_device = false;
	EXPECT_EQ(open_and_create_as_nobody(with), -EPERM);
}

TEST_F(ArenaTest, StrangeDeviceFileIsNotUsed)
{
	set_script([](Request &request) {
		Reply reply = FakeManager::agree(request);

		reply.file.reset(::open(request.body["op"] == "hello" ? "/dev/null" : "/etc/passwd",
					O_RDONLY | O_CLOEXEC));
		return reply;
	});
	create(); /* by our own rights */
	EXPECT_EQ(registered_.size(), 1u);
}

} // namespace
