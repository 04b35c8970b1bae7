/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Random calls of /dev/cxl_kv that know its structures: an argument begins as a
 * valid one and is then spoilt a little, so that most of the module's code is
 * reached. Several processes with two threads each share open files; arenas are
 * registered, touched, torn, remapped and left behind, children exit and exec with
 * them.
 * Meanwhile managers die in the middle of their calls, and where there is a range
 * for it, the module adds a node, on which the arenas are, and it is removed.
 *
 *	CXL_KV_FUZZ_CALLS	ioctls in all (100,000)
 *	CXL_KV_FUZZ_SEED	0 = from the clock; the seed is printed
 *
 * Checked: only documented errnos, the module can be removed afterwards, and, by
 * the harness, a clean kernel log. The same seed gives each thread the same
 * calls; how they meet is up to the scheduler.
 */
#include "vm/kmod/device.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <numaif.h>
#include <poll.h>
#include <random>
#include <set>
#include <sys/eventfd.h>
#include <thread>
#include <vector>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

constexpr unsigned nr_processes = 3, nr_threads = 2;
constexpr unsigned nr_rounds = 4; /* in each the module is loaded, and removed again */
constexpr uint32_t commands[] = {CXL_KV_IOC_INFO,           CXL_KV_IOC_ATTACH_MANAGER,
				 CXL_KV_IOC_ARENA_REGISTER, CXL_KV_IOC_ARENA_UNREGISTER,
				 CXL_KV_IOC_NEXT_EVENT,     CXL_KV_IOC_ARENA_GET,
				 CXL_KV_IOC_ARENA_SET_KEY,  CXL_KV_IOC_HINT,
				 CXL_KV_IOC_HINTS_READ,     CXL_KV_IOC_HEADS_READ,
				 CXL_KV_IOC_SLOTS_READ,     CXL_KV_IOC_SAMPLE_SET};

/* What all processes add up, in memory that they share. */
struct Totals {
	std::atomic<uint64_t> calls{0}, successes[12] = {}; /* by command */
	std::atomic<uint32_t> wrong_request{0}, wrong_errno{0};
	std::atomic<uint32_t> arenas[nr_processes][16] = {}; /* numbers that each got lately */
};

bool documented(int error)
{
	static const std::set<int> known = {0,      E2BIG,  EAGAIN,     EBADF,  EBUSY,
					    EEXIST, EFAULT, EINVAL,     ENOENT, ENOMEM,
					    ENOSPC, ENOTTY, EOPNOTSUPP, EPERM};
	return known.contains(error);
}

/* One thread's calls. The files are the process's: other threads use and replace them too. */
class Fuzzer {
public:
	Fuzzer(std::vector<int> &files, Totals &totals, unsigned process, uint64_t seed,
	       uint64_t nr_calls)
	    : files_(files), totals_(totals), process_(process), random_(seed), nr_calls_(nr_calls)
	{
		/*
		 * Arguments may end at the end of what is mapped. And half of a pointer that
		 * is spoilt lies in 4 GiB where nothing else is: the kernel writes where it
		 * is told to, into our own heap just as well.
		 */
		static std::atomic<uintptr_t> nr_pages{0};
		void *alone = reinterpret_cast<void *>((0x2000 + nr_pages++) << 32);
		page_ = static_cast<uint8_t *>(
			mmap(alone, 2 * 4096, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
		if (page_ != alone)
			abort();
		mprotect(page_ + 4096, 4096, PROT_NONE);
		for (int i = 0; i < 3; i++)
			parts_.push_back(std::make_unique<ArenaParts>());
	}
	~Fuzzer() { munmap(page_, 2 * 4096); }

	void run()
	{
		for (uint64_t i = 0; i < nr_calls_; i++) {
			one_ioctl();
			if (one_of(16))
				something_else();
		}
	}

private:
	bool one_of(uint32_t n) { return random_() % n == 0; }
	template <typename T, size_t n> T pick(const T (&from)[n]) { return from[random_() % n]; }
	int file() { return files_[random_() % files_.size()]; }
	/* Mostly the manager's file for what a manager does, and the clients' for the rest. */
	int file_for(uint32_t command)
	{
		bool client = command == CXL_KV_IOC_ARENA_REGISTER || command == CXL_KV_IOC_HINT ||
			      command == CXL_KV_IOC_ARENA_UNREGISTER;
		return one_of(8) ? file() : files_[client];
	}
	ArenaParts &parts() { return *parts_[random_() % parts_.size()]; }
	uint64_t number()
	{
		static const uint64_t corners[] = {0,
						   1,
						   2,
						   35,
						   63,
						   64,
						   100,
						   4095,
						   4096,
						   4097,
						   65535,
						   1u << 16,
						   0x7fffffff,
						   0x80000000,
						   0xffffffff,
						   1ull << 32,
						   1ull << 63,
						   ~0ull,
						   0x7ffffffff000};
		return one_of(2) ? pick(corners) : random_();
	}
	uint32_t arena()
	{
		return one_of(8) ? uint32_t(number())
				 : totals_.arenas[process_][random_() % 16].load();
	}
	uint64_t room() /* for an answer: some of it, the rest of a page, or nowhere */
	{
		return one_of(8) ? number() : reinterpret_cast<uintptr_t>(page_) + random_() % 4096;
	}

	template <typename T> size_t put(const T &argument)
	{
		memcpy(argument_, &argument, sizeof(argument));
		return sizeof(argument);
	}

	size_t valid(uint32_t command)
	{
		switch (command) {
		case CXL_KV_IOC_INFO:
			return put(cxl_kv_info{});
		case CXL_KV_IOC_ATTACH_MANAGER:
			return put(cxl_kv_attach_manager{});
		case CXL_KV_IOC_ARENA_REGISTER: {
			cxl_kv_arena_register arg = parts().argument();
			arg.ring_entries = pick({0u, 64u, 128u});
			if (one_of(3)) {
				arg.nr_layer_windows = 2;
				arg.layer_windows = room();
			}
			return put(arg);
		}
		case CXL_KV_IOC_ARENA_UNREGISTER:
			return put(cxl_kv_arena_unregister{0, 0, arena(), 0});
		case CXL_KV_IOC_NEXT_EVENT:
			return put(cxl_kv_next_event{});
		case CXL_KV_IOC_ARENA_GET: {
			cxl_kv_arena_get arg{};
			arg.arena = arena();
			arg.nr_layer_windows = pick({0u, 2u, 512u});
			arg.layer_windows = room();
			return put(arg);
		}
		case CXL_KV_IOC_ARENA_SET_KEY:
			return put(cxl_kv_arena_set_key{0, 0, arena(), 0, random_()});
		case CXL_KV_IOC_HINT:
			fill_hints();
			return put(cxl_kv_hints{0, 0, arena(), uint32_t(random_() % 40),
						reinterpret_cast<uintptr_t>(hints_), 0, 0});
		case CXL_KV_IOC_HINTS_READ: {
			cxl_kv_hints_read arg{};
			arg.arena = arena();
			arg.nr = uint32_t(random_() % 64);
			arg.hints = room();
			return put(arg);
		}
		case CXL_KV_IOC_HEADS_READ:
		case CXL_KV_IOC_SLOTS_READ:
			return put(cxl_kv_state_read{0, 0, arena(), uint32_t(random_() % 6),
						     uint32_t(random_() % 8), 0, room()});
		default: {
			cxl_kv_sample_set arg{};
			arg.arena = arena();
			arg.way = uint32_t(random_() % 3);
			if (arg.way) {
				arg.interval_ms = 10;
				arg.budget_permil = 100;
				arg.flags = arg.way == 1 && one_of(2) ? CXL_KV_SAMPLE_FLUSH_TLB : 0;
			}
			return put(arg);
		}
		}
	}

	void fill_hints()
	{
		for (cxl_kv_hint &hint : hints_) {
			hint = {};
			hint.kind = uint8_t(1 + random_() % 8);
			hint.slot = uint32_t(random_() % 2);
			bool blocks = hint.kind <= 1 || hint.kind == 3 || hint.kind == 4 ||
				      hint.kind == 8;
			hint.head = blocks ? uint32_t(random_() % 4) : 0;
			hint.nr_blocks = blocks ? uint32_t(1 + random_() % 4) : 0;
			if (hint.kind == CXL_KV_HINT_SCORE)
				hint.score = uint16_t(random_());
			if (hint.kind == CXL_KV_HINT_PIN)
				hint.priority = uint8_t(random_() % 101);
			if (one_of(10))
				reinterpret_cast<uint8_t *>(&hint)[random_() % sizeof(hint)] =
					uint8_t(random_());
		}
	}

	void one_ioctl()
	{
		uint32_t command = pick(commands);
		size_t bytes = valid(command);
		/* Most sizes are right, some are of another version, some are nonsense. */
		auto size = uint32_t(one_of(6) ? bytes + random_() % 24 : bytes);
		if (one_of(12))
			size = uint32_t(number());
		memcpy(argument_, &size, sizeof(size));
		for (uint64_t spoil = one_of(3) ? 1 + random_() % 3 : 0; spoil-- > 0;) {
			size_t at = 4 + random_() % (bytes - 4) / 4 * 4;
			auto value = uint32_t(number());
			memcpy(argument_ + at, &value, sizeof(value));
		}
		size_t shown = std::min<size_t>(size, sizeof(argument_));
		uint8_t *at = one_of(3) ? page_ + 4096 - std::max<size_t>(shown, 4) : page_;
		memcpy(at, argument_, std::max<size_t>(shown, 4));
		uint32_t request = one_of(64) ? uint32_t(random_()) : command;
		void *pointer = one_of(64) ? reinterpret_cast<void *>(number()) : at;

		int error = ioctl(file_for(command), request, pointer) ? errno : 0;
		totals_.calls++;
		totals_.successes[command - CXL_KV_IOC_INFO] += !error && request == command;
		if (!documented(error)) {
			totals_.wrong_request = request;
			totals_.wrong_errno = uint32_t(error);
		}
		if (!error && command == CXL_KV_IOC_ARENA_REGISTER && request == command &&
		    pointer == at && shown >= sizeof(cxl_kv_arena_register)) {
			cxl_kv_arena_register got;
			memcpy(&got, at, sizeof(got));
			totals_.arenas[process_][random_() % 16] = got.arena;
		}
		/* Files that ARENA_GET gave. */
		if (!error && command == CXL_KV_IOC_ARENA_GET && request == command &&
		    pointer == at) {
			cxl_kv_arena_get got;
			memcpy(&got, at, std::min(sizeof(got), shown));
			for (int fd : {got.memory_fd, got.uffd, got.table_fd})
				if (fd > 2 &&
				    std::find(files_.begin(), files_.end(), fd) == files_.end())
					close(fd);
		}
	}

	void something_else()
	{
		ArenaParts &arena = parts();
		std::byte *at = arena.map.data() + random_() % 128 * 4096;
		size_t bytes = (1 + random_() % 8) * 4096;

		switch (random_() % 11) {
		case 0: { /* a ring, or what is none */
			size_t length = pick({4096ul, 8192ul, 12288ul});
			void *ring =
				mmap(nullptr, length, pick({PROT_READ, PROT_READ | PROT_WRITE}),
				     pick({MAP_SHARED, MAP_PRIVATE}), file(),
				     static_cast<off_t>(random_() % 16 << (one_of(2) ? 12 : 32)));
			if (ring != MAP_FAILED) {
				*static_cast<volatile uint32_t *>(ring);
				munmap(ring, length);
			}
			break;
		}
		case 1:
			if (one_of(8))
				munmap(at, 4096);
			break;
		case 2: /* memory of another kind under the range */
			if (one_of(8))
				mmap(at, 4096, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			break;
		case 3:
			fallocate(arena.memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				  static_cast<off_t>(random_() % 64 * 4096),
				  static_cast<off_t>(bytes));
			break;
		case 4: /* a child with everything, which ends one way or the other */
			if (one_of(16)) {
				pid_t pid = fork();
				if (pid == 0) {
					ioctl(file(), CXL_KV_IOC_NEXT_EVENT, page_);
					if (one_of(2))
						execl("/bin/true", "true", nullptr);
					_exit(0);
				}
				waitpid(pid, nullptr, 0);
			}
			break;
		case 5: { /* another open file under the same number */
			Fd fresh(open("/dev/cxl_kv", O_RDWR | O_CLOEXEC));
			if (fresh && one_of(4))
				dup2(fresh.get(), files_[random_() % 2]);
			break;
		}
		case 6: {
			pollfd wait{file(), POLLIN, 0};
			poll(&wait, 1, 0);
			break;
		}
		case 7:
			read(file(), page_, 64);
			break;
		case 8: /* by the kernel: it says EFAULT where others would get a signal */
			read(zeros_.get(), at, bytes);
			break;
		case 9:
			pwrite(scratch_.get(), at, bytes, 0);
			break;
		default: /* new memory, now and then: what was spoilt is gone */
			if (one_of(4))
				parts_[random_() % parts_.size()] = std::make_unique<ArenaParts>();
		}
	}

	std::vector<int> &files_;
	Totals &totals_;
	const unsigned process_;
	std::mt19937_64 random_;
	const uint64_t nr_calls_;
	uint8_t *page_;
	uint8_t argument_[4096] = {};
	cxl_kv_hint hints_[40];
	std::vector<std::unique_ptr<ArenaParts>> parts_;
	Fd zeros_{open("/dev/zero", O_RDONLY | O_CLOEXEC)},
		scratch_{memfd_create("scratch", MFD_CLOEXEC)};
};

int process(Totals &totals, unsigned number, uint64_t seed, uint64_t nr_calls)
{
	Fd first(open("/dev/cxl_kv", O_RDWR | O_CLOEXEC)),
		second(open("/dev/cxl_kv", O_RDWR | O_CLOEXEC));
	Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	/* The manager's if it gets the seat, a client's; then any, and files of another kind. */
	std::vector<int> files = {first.get(), second.get(), first.get(),  second.get(),
				  event.get(), first.get(),  second.get(), 1000};
	std::vector<std::thread> threads;
	unsigned long node1 = 1ul << 1;

	set_mempolicy(MPOL_PREFERRED, &node1, 8 * sizeof(node1)); /* where there is one */
	for (unsigned i = 0; i < nr_threads; i++)
		threads.emplace_back([&, i] {
			Fuzzer(files, totals, number, seed + i, nr_calls / nr_threads).run();
		});
	for (std::thread &thread : threads)
		thread.join();
	return 0;
}

/* All on one open file, until it is killed: the manager, if the seat is free at some time. */
[[noreturn]] void mortal(Totals &totals, uint64_t seed)
{
	std::vector<int> files(8, open("/dev/cxl_kv", O_RDWR | O_CLOEXEC));

	Fuzzer(files, totals, unsigned(seed % nr_processes), seed, ~0ull).run();
	_exit(0);
}

uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	uint64_t value = text ? strtoull(text, nullptr, 10) : 0;
	return value ? value : otherwise;
}

pid_t start(const std::function<void()> &body)
{
	pid_t pid = fork();

	if (pid == 0) {
		body();
		_exit(0);
	}
	return pid;
}

class Fuzz : public testing::Test {
protected:
	void SetUp() override
	{
		void *shared = mmap(nullptr, sizeof(Totals), PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		ASSERT_NE(shared, MAP_FAILED);
		totals = new (shared) Totals;
		/* The kernel's own allocations on the node could not be moved away. */
		std::ofstream("/sys/devices/system/memory/auto_online_blocks") << "online_movable";
	}
	void TearDown() override { munmap(totals, sizeof(Totals)); }

	static std::string parameters()
	{
		const char *base = getenv("KV_NODE1_BASE");
		bool reserved = base && access("/sys/devices/system/node/node1", F_OK);

		return reserved ? std::string("node=1 size=256M base=") + base : "";
	}
	/* 0, or errno; ENOENT where no node was added. */
	static int remove_node()
	{
		Fd verb(open("/sys/class/cxl_kv/node1/remove", O_WRONLY | O_CLOEXEC));

		return verb && write(verb.get(), "1", 1) == 1 ? 0 : errno;
	}

	/* Starts and kills managers until the processes have ended; removes the node in between. */
	void disturb(const std::vector<pid_t> &processes, uint64_t seed, uint64_t half_of_calls)
	{
		std::minstd_rand random{static_cast<unsigned>(seed)};
		size_t nr_ended = 0;

		for (bool removed = false; nr_ended < processes.size(); nr_mortals++) {
			pid_t pid = start([&] { mortal(*totals, seed + nr_mortals); });
			int status = 0;

			if (!removed && totals->calls > half_of_calls) {
				int error = remove_node();
				EXPECT_TRUE(!error || error == EBUSY || error == ENOENT)
					<< strerror(error);
				removed = true;
				nr_removed += !error;
			}
			look_at_arenas();
			usleep(random() % 100000);
			kill(pid, SIGKILL);
			waitpid(pid, nullptr, 0);
			while (waitpid(-1, &status, WNOHANG) > 0) {
				nr_ended++;
				EXPECT_EQ(status, 0) << "a process ended by a signal";
			}
		}
	}

	/* What the passes found, while arenas and their folders come and go. */
	void look_at_arenas()
	{
		std::error_code gone;
		for (auto at = std::filesystem::directory_iterator("/sys/class/cxl_kv", gone);
		     at != std::filesystem::directory_iterator(); at.increment(gone)) {
			auto number = [&](const char *name) {
				return strtoull(read_file(at->path() / name).c_str(), nullptr, 10);
			};
			nr_passes = std::max(nr_passes, number("sample/passes"));
			nr_touched = std::max(nr_touched, number("sample/touched_pages"));
		}
	}

	void round(uint64_t seed, uint64_t nr_calls)
	{
		uint64_t before = totals->calls;
		std::vector<pid_t> processes;

		ASSERT_EQ(load_module(parameters().c_str()), 0);
		for (unsigned i = 0; i < nr_processes; i++)
			processes.push_back(start([&, i] {
				process(*totals, i, seed + i * nr_threads, nr_calls / nr_processes);
			}));
		disturb(processes, seed + 1000, before + nr_calls / 2);
		if (access("/sys/devices/system/node/node1", F_OK) == 0) {
			EXPECT_EQ(remove_node(), 0);
		}
		ASSERT_EQ(unload_module_soon(), 0);
	}

	Totals *totals = nullptr;
	unsigned nr_mortals = 0, nr_removed = 0;
	unsigned long long nr_passes = 0, nr_touched = 0; /* of the arena that had most */
};

TEST_F(Fuzz, RandomCallsDoNoHarm)
{
	const uint64_t seed = setting(
		"CXL_KV_FUZZ_SEED",
		static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
	const uint64_t nr_calls = setting("CXL_KV_FUZZ_CALLS", 100000);
	auto begin = std::chrono::steady_clock::now();

	for (unsigned i = 0; i < nr_rounds && !HasFatalFailure(); i++)
		round(seed + 10000 * i, nr_calls / nr_rounds);
	std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
	printf("# CXL_KV_FUZZ_SEED=%lu: %lu calls, %.0f a second; %u managers killed, node removed "
	       "under way in %u of %u rounds\n"
	       "# of the arenas that were looked at, one had %llu passes, one %llu touched pages\n"
	       "# succeeded, by command:",
	       seed, totals->calls.load(), double(totals->calls) / seconds.count(), nr_mortals,
	       nr_removed, nr_rounds, nr_passes, nr_touched);
	for (uint32_t command : commands) {
		uint64_t nr = totals->successes[command - CXL_KV_IOC_INFO];
		printf(" %lu", nr);
		EXPECT_GT(nr, totals->calls.load() / 50000)
			<< "hardly a call of command " << (command & 0xff)
			<< " gets past the checks";
	}
	printf("\n");
	EXPECT_GT(nr_touched, 0u) << "the passes had nothing to find";
	EXPECT_TRUE(nr_removed || parameters().empty()) << "the node was always busy";
	EXPECT_EQ(totals->wrong_errno.load(), 0u)
		<< "an undocumented errno, of ioctl " << std::hex << totals->wrong_request.load();
}

} // namespace
