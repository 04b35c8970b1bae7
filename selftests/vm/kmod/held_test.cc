/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A client that keeps its own address space locked: it maps a file of FUSE,
 * whose server it is too, and does not answer the read that a page fault waits
 * for. Who wants to look at its page tables waits with it; sampling must not.
 */
#include "vm/kmod/device.h"

#include <atomic>
#include <future>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <thread>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

[[maybe_unused]] auto *const environment = testing::AddGlobalTestEnvironment(new ModuleLoaded);

constexpr char path[] = "/run/kv-held";

/* A file system of one file. Two reads fail, readahead and one more, both without a lock. */
class Server {
public:
	Server() : device_(open("/dev/fuse", O_RDWR | O_CLOEXEC))
	{
		std::string options =
			"rootmode=100000,user_id=0,group_id=0,fd=" + std::to_string(device_.get());

		Fd(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
		EXPECT_EQ(mount("kv", path, "fuse", 0, options.c_str()), 0) << strerror(errno);
		thread_ = std::thread([this] { serve(); });
	}
	~Server()
	{
		end();
		thread_.join();
	}
	/* Whoever waits for an answer gets an error. */
	static void end() { umount2(path, MNT_FORCE | MNT_DETACH); }
	[[nodiscard]] bool is_waited_for() const { return nr_reads_ > 2; }

private:
	void serve()
	{
		alignas(8) char request[FUSE_MIN_READ_BUFFER];

		while (read(device_.get(), request, sizeof(request)) > 0)
			answer(*reinterpret_cast<const fuse_in_header *>(request));
	}
	void answer(const fuse_in_header &in)
	{
		fuse_init_out init{};
		fuse_attr_out attr{};
		fuse_open_out opened{};

		switch (in.opcode) {
		case FUSE_INIT:
			init.major = FUSE_KERNEL_VERSION;
			init.minor = 31;
			init.max_write = 4096;
			init.max_readahead = 4096;
			return reply(in, 0, &init, sizeof(init));
		case FUSE_GETATTR:
			attr.attr.ino = 1;
			attr.attr.nlink = 1;
			attr.attr.size = 4096;
			attr.attr.mode = S_IFREG | 0600;
			return reply(in, 0, &attr, sizeof(attr));
		case FUSE_OPEN:
			return reply(in, 0, &opened, sizeof(opened));
		case FUSE_READ:
			return ++nr_reads_ > 2 ? void() : reply(in, -EIO, nullptr, 0);
		}
		reply(in, -ENOSYS, nullptr, 0);
	}
	void reply(const fuse_in_header &in, int error, const void *body, size_t bytes) const
	{
		std::string out(sizeof(fuse_out_header), 0);
		fuse_out_header header{static_cast<uint32_t>(sizeof(header) + bytes), error,
				       in.unique};

		memcpy(out.data(), &header, sizeof(header));
		out.append(static_cast<const char *>(body), bytes);
		EXPECT_EQ(write(device_.get(), out.data(), out.size()), ssize_t(out.size()));
	}

	Fd device_;
	std::thread thread_;
	std::atomic<int> nr_reads_{0};
};

bool within(int seconds, const std::function<bool()> &condition)
{
	for (int i = 0; i < seconds * 100 && !condition(); i++)
		usleep(10 * 1000);
	return condition();
}

/* One thread waits in a fault for what is never read, the other one to change the mappings. */
int hold(int number_to, int go)
{
	Fd device = open_device(), file(open(path, O_RDONLY | O_CLOEXEC));
	ArenaParts parts;
	uint32_t number = 0;
	char byte = 0;
	struct stat sized {};

	/* Until it is asked the kernel takes the file for an empty one. */
	if (fstat(file.get(), &sized))
		return 1;
	const auto *page = static_cast<const volatile char *>(
		mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file.get(), 0));

	if (page == MAP_FAILED || parts.register_on(device, &number) ||
	    write(number_to, &number, sizeof(number)) != sizeof(number) || read(go, &byte, 1) != 1)
		return 1;
	std::thread([page] { (void)*page; }).detach();
	if (read(go, &byte, 1) != 1)
		return 1;
	mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pause();
	return 0;
}

TEST(Held, AddressSpaceStopsNeitherSamplingNorTheManager)
{
	if (system("modprobe -q fuse") != 0)
		GTEST_SKIP() << "this kernel has no FUSE";
	Server server;
	int numbers[2], go[2];
	uint32_t arena = 0;

	ASSERT_EQ(pipe2(numbers, O_CLOEXEC), 0);
	ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0)
		_exit(hold(numbers[1], go[0]));
	ASSERT_EQ(read(numbers[0], &arena, sizeof(arena)), ssize_t(sizeof(arena)));
	ASSERT_EQ(write(go[1], "x", 1), 1);
	ASSERT_TRUE(within(30, [&] { return server.is_waited_for(); }));
	ASSERT_EQ(write(go[1], "x", 1), 1);
	ASSERT_TRUE(within(30, [&] {
		return read_file("/proc/" + std::to_string(pid) + "/stat").find(") D ") !=
		       std::string::npos;
	})) << "the address space is not locked";

	Fd manager = open_device();
	cxl_kv_sample_set set{sizeof(set), 0, arena, CXL_KV_SAMPLE_ACCESSED, 10, 100};
	std::string dir = "/sys/class/cxl_kv/arena" + std::to_string(arena) + "/sample/";
	EXPECT_EQ(attach(manager), 0);
	EXPECT_EQ(call(manager, CXL_KV_IOC_SAMPLE_SET, &set), 0);
	EXPECT_TRUE(within(30, [&] {
		return strtoul(read_file(dir + "locked_out").c_str(), nullptr, 10) > 2;
	})) << "a pass is stuck";
	EXPECT_EQ(read_file(dir + "passes"), "0");
	set = {sizeof(set), 0, arena, CXL_KV_SAMPLE_OFF, 0, 0};
	auto off = std::async(std::launch::async,
			      [&] { return call(manager, CXL_KV_IOC_SAMPLE_SET, &set); });
	EXPECT_EQ(off.wait_for(std::chrono::seconds(30)), std::future_status::ready)
		<< "the manager is stuck";
	Server::end();
	EXPECT_EQ(off.get(), 0);
	kill(pid, SIGKILL);
	waitpid(pid, nullptr, 0);
}

} // namespace
