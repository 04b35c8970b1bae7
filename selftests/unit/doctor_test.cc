/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* `cxl-kv doctor` on hosts that the tests bring along: each trap is found, and a good host has
 * none. */
#include "cli/doctor.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <nlohmann/json.hpp>

using namespace cxlkv;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/* A host's files below a temporary folder. */
class Doctor : public testing::Test {
protected:
	Doctor()
	{
		root_ = testing::TempDir() + "cxl-kv-doctor-XXXXXX";
		EXPECT_NE(mkdtemp(root_.data()), nullptr);
		put("/proc/sys/kernel/osrelease", "6.12.117-amd64");
		put("/proc/sys/kernel/io_uring_disabled", "0");
		put("/proc/sys/kernel/numa_balancing", "0");
		put("/dev/userfaultfd", "");
		put("/sys/kernel/btf/vmlinux", "");
		put("/sys/bus/event_source/devices/ibs_op/type", "11");
		put("/sys/module/cxl_kv/version", "0.1.0");
		put("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
		    "always within_size advise [never] deny force");
		put("/sys/devices/system/node/has_memory", "0,2");
		put("/sys/devices/system/node/has_cpu", "0");
		put("/sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0");
		put("/sys/devices/virtual/memory_tiering/memory_tier22/nodelist", "2");
		put("/sys/devices/system/node/node2/access0/initiators/read_latency", "300");
		put("/sys/devices/system/node/node2/access0/initiators/read_bandwidth", "50000");
		put("/sys/bus/cxl/devices/mem0/serial", "1");
		put("/sys/bus/cxl/devices/region0/commit", "1");
		link("/sys/bus/cxl/devices/region0/driver", "../../../bus/cxl/drivers/cxl_region");
	}
	~Doctor() override { fs::remove_all(root_); }

	void put(const std::string &path, const std::string &text)
	{
		fs::create_directories(fs::path(root_ + path).parent_path());
		std::ofstream(root_ + path) << text << "\n";
	}
	void link(const std::string &path, const std::string &target)
	{
		fs::create_directories(fs::path(root_ + path).parent_path());
		fs::create_symlink(target, root_ + path);
	}
	void gone(const std::string &path) { fs::remove_all(root_ + path); }

	Findings examine()
	{
		Findings out;
		examine_kernel(Host(root_), out);
		examine_memory(Host(root_), out);
		return out;
	}
	/* Examines host and expects one finding of the level whose text has the part, with a
	 * remedy. */
	void expect(Finding::Level level, const std::string &topic, const std::string &part)
	{
		expect_in(examine(), level, topic, part);
	}
	static void expect_in(const Findings &findings, Finding::Level level,
			      const std::string &topic, const std::string &part)
	{
		std::string all;
		for (const Finding &f : findings) {
			if (f.level == level && f.topic == topic &&
			    f.text.find(part) != std::string::npos) {
				EXPECT_EQ(f.remedy.empty(), level == Finding::Good) << f.text;
				return;
			}
			all += std::string(level_name(f.level)) + " " + f.topic + ": " + f.text +
			       "\n";
		}
		ADD_FAILURE() << "no " << topic << " \"" << part << "\" among\n" << all;
	}

	void expect_none(const std::string &part)
	{
		for (const Finding &f : examine())
			EXPECT_EQ(f.text.find(part), std::string::npos) << f.text;
	}

	std::string root_;
};

json status()
{
	return json::parse(R"({"version":"0.1.0","pid":77,"mode":"module","uptime_s":60,"made":10,
		"tiers":{"hot":{"limit_bytes":100},"warm":{"limit_bytes":400},"cold":{"limit_bytes":1000}}})");
}

} // namespace

TEST_F(Doctor, NothingToSayOfAGoodHost)
{
	Findings findings = examine();
	for (const Finding &f : findings)
		EXPECT_EQ(f.level, Finding::Good) << f.topic << ": " << f.text;
	EXPECT_GE(findings.size(), 8u);
}

TEST_F(Doctor, AHostWithoutAnyFileIsNoCrash)
{
	gone("");
	for (const Finding &f : examine())
		EXPECT_TRUE(f.level == Finding::Good || !f.remedy.empty()) << f.text;
}

TEST_F(Doctor, Kernels)
{
	gone("/proc/sys/kernel/osrelease");
	expect(Finding::Warn, "kernel", "not to be seen");
	put("/proc/sys/kernel/osrelease", "5.10.0-30-amd64");
	expect(Finding::Bad, "kernel", "too old");
	put("/proc/sys/kernel/osrelease", "6.1.0-40-amd64");
	expect(Finding::Note, "kernel", "native mode only");
	put("/proc/sys/kernel/osrelease", "6.8.0");
	expect(Finding::Good, "kernel", "6.8.0");
}

TEST_F(Doctor, Module)
{
	gone("/sys/module/cxl_kv");
	expect(Finding::Note, "module", "not installed");
	put("/var/lib/dkms/cxl_kv/0.1.0/source", "");
	expect(Finding::Warn, "module", "DKMS has the source");
	put("/lib/modules/6.12.117-amd64/updates/dkms/cxl_kv.ko.xz", "");
	expect(Finding::Warn, "module", "not loaded");
}

TEST_F(Doctor, Signing)
{
	gone("/sys/module/cxl_kv");
	put("/sys/kernel/security/lockdown", "none [integrity] confidentiality");
	expect(Finding::Warn, "signing", "lockdown integrity");
	put("/sys/kernel/security/lockdown", "none integrity [confidentiality]");
	expect(Finding::Warn, "lockdown", "confidentiality");
	put("/sys/kernel/security/lockdown", "[none] integrity confidentiality");
	put("/sys/module/module/parameters/sig_enforce", "Y");
	expect(Finding::Warn, "signing", "sig_enforce");
	put("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
	    std::string("\x06\0\0\0\x01", 5));
	expect(Finding::Warn, "signing", "sig_enforce, Secure Boot");
	put("/sys/module/cxl_kv/version", "0.1.0"); /* it is in, so it was signed */
	expect(Finding::Good, "signing", "was taken");
}

TEST_F(Doctor, WhatTheDaemonNeeds)
{
	gone("/dev/userfaultfd");
	expect(Finding::Bad, "userfaultfd", "no /dev/userfaultfd");
	put("/proc/sys/kernel/io_uring_disabled", "1");
	expect(Finding::Warn, "io_uring", "one group");
	put("/proc/sys/kernel/io_uring_disabled", "2");
	expect(Finding::Bad, "io_uring", "everybody");
	gone("/sys/kernel/btf");
	expect(Finding::Warn, "BPF", "no BTF");
	gone("/sys/bus/event_source");
	expect(Finding::Note, "PMU", "as in most VMs");
	put("/proc/self/status", "Name:\tx\nSeccomp:\t2");
	expect(Finding::Note, "seccomp", "filter");
	put("/proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2");
	expect(Finding::Note, "swap", "swap is on");
	put("/.dockerenv", "");
	expect(Finding::Note, "container", "container");
}

TEST_F(Doctor, NodesAndTiers)
{
	put("/sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0-2");
	gone("/sys/devices/virtual/memory_tiering/memory_tier22");
	expect(Finding::Note, "tiers", "nodes 0 and 2 in one tier");
	gone("/sys/devices/system/node/node2/access0");
	expect(Finding::Note, "HMAT", "nothing of node 2");
	put("/sys/devices/system/node/has_memory", "0");
	expect(Finding::Note, "nodes", "no warm tier");
}

TEST_F(Doctor, Cxl)
{
	gone("/sys/bus/cxl/devices/region0/driver");
	expect(Finding::Note, "CXL", "no driver holds it");
	put("/sys/bus/cxl/devices/region0/commit", "0");
	expect(Finding::Warn, "CXL", "not committed");
	gone("/sys/bus/cxl/devices/region0");
	expect(Finding::Warn, "CXL", "no region");
	gone("/sys/bus/cxl");
	expect(Finding::Note, "CXL", "no CXL device");
	link("/sys/bus/dax/devices/dax0.0/driver", "../../../bus/dax/drivers/device_dax");
	expect(Finding::Warn, "CXL", "dax0.0 is a dax device");
}

TEST_F(Doctor, Zones)
{
	const std::string block = "/sys/devices/system/node/node2/memory40";
	put(block + "/state", "online");
	put(block + "/valid_zones", "Movable Normal");
	expect(Finding::Note, "zones", "all movable");
	put(block + "/valid_zones", "Normal");
	expect(Finding::Note, "zones", "all kernel");
	put(block + "/state", "offline");
	expect(Finding::Warn, "memory blocks", "1 blocks are offline");
}

TEST_F(Doctor, OthersThatMovePages)
{
	put("/proc/sys/kernel/numa_balancing", "2");
	expect(Finding::Warn, "tierers", "NUMA balancing");
	put("/sys/kernel/mm/numa/demotion_enabled", "true");
	expect(Finding::Warn, "tierers", "demotion");
	const std::string damon = "/sys/kernel/mm/damon/admin/kdamonds/0";
	put(damon + "/state", "on");
	put(damon + "/contexts/0/schemes/0/action", "stat"); /* it watches */
	expect_none("DAMON thread");
	put(damon + "/contexts/0/schemes/1/action", "migrate_hot");
	expect(Finding::Warn, "tierers", "DAMON thread 0");
	expect(Finding::Warn, "tierers", "migrate_hot");
	put(damon + "/state", "off");
	expect_none("DAMON thread");
	put("/sys/module/damon_reclaim/parameters/enabled", "Y");
	expect(Finding::Warn, "tierers", "damon_reclaim");
	put("/proc/1234/comm", "memtierd");
	expect(Finding::Warn, "tierers", "memtierd (pid 1234)");
	put("/proc/1235/comm", "numad");
	expect(Finding::Warn, "tierers", "numad (pid 1235)");
	put("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
	    "[always] within_size advise never deny force");
	expect(Finding::Warn, "huge pages", "always");
}

TEST_F(Doctor, Storage)
{
	auto storage = [&](SpillPlace place, uint64_t limit) {
		Findings out;
		examine_storage(Host(root_), place, limit, out);
		return out;
	};
	SpillPlace place = {"/spill", "", EXT4_SUPER_MAGIC, 1 << 30, 259, 1, false};

	put("/sys/dev/block/259:1/queue/rotational", "0");
	put("/sys/dev/block/259:1/queue/write_cache", "write through");
	for (const Finding &f : storage(place, 1 << 30))
		EXPECT_EQ(f.level, Finding::Good) << f.text;
	expect_in(storage(place, (1 << 30) + 1), Finding::Warn, "space", "1.00 GiB are free");
	place.fs_type = TMPFS_MAGIC;
	expect_in(storage(place, 1), Finding::Bad, "spill store", "tmpfs");
	place.fs_type = NFS_SUPER_MAGIC;
	expect_in(storage(place, 1), Finding::Warn, "spill store", "network");
	place.fs_type = BTRFS_SUPER_MAGIC;
	expect_in(storage(place, 1), Finding::Warn, "spill store", "copies on write");
	put("/sys/dev/block/259:1/queue/rotational", "1");
	put("/sys/dev/block/259:1/queue/write_cache", "write back");
	expect_in(storage(place, 1), Finding::Warn, "drive", "rotating");
	expect_in(storage(place, 1), Finding::Note, "drive", "volatile write cache");
	expect_in(storage(place, 1), Finding::Note, "drive", "no power-loss protection");
	place.missing_folder = "/spills";
	expect_in(storage(place, 1), Finding::Warn, "spill store", "no folder /spills");
	for (const Finding &f : storage(place, 1))
		EXPECT_FALSE(f.topic == "spill store" && f.level == Finding::Good) << f.text;
	place.minor = 9;
	expect_in(storage(place, 1), Finding::Note, "drive", "not to be seen");
}

TEST_F(Doctor, DaemonAndItsClients)
{
	auto daemon = [&](const json &s, const json &list) {
		Findings out;
		examine_daemon(Host(root_), s, list, out);
		return out;
	};
	json list =
		json::parse(R"({"arenas":[{"arena":1,"name":"e\u001b","pid":88,"elem_bytes":1}]})");

	put("/proc/77/limits",
	    "Limit  Soft Limit  Hard Limit  Units\nMax locked memory  unlimited  unlimited  bytes");
	for (const Finding &f : daemon(status(), list))
		EXPECT_EQ(f.level, Finding::Good) << f.text;
	put("/proc/77/limits", "Max locked memory  8388608  8388608  bytes");
	expect_in(daemon(status(), list), Finding::Warn, "memlock", "only a part");
	put("/proc/77/status", "Name:\tcxl-kvd\nCapEff:\t0000000000004000");
	expect_in(daemon(status(), list), Finding::Good, "memlock", "all of");

	json unsampled = status();
	unsampled["sampling"]["not_used"]["bpf"] = "Operation not permitted";
	expect_in(daemon(unsampled, list), Finding::Warn, "BPF", "not sampled: Operation");
	unsampled["sampling"]["not_used"]["bpf"] = "sampling.source is off";
	unsampled["sampling"]["wanted"] = false;
	expect_in(daemon(unsampled, list), Finding::Note, "BPF", "not sampled: sampling.source");
	put("/proc/88/status", "Seccomp:\t2");
	expect_in(daemon(status(), list), Finding::Note, "seccomp", "e? (pid 88)");
	gone("/proc/88/status");

	put("/proc/88/cgroup", "0::/engines/one");
	put("/sys/fs/cgroup/engines/one/memory.max", "1073741824");
	put("/sys/fs/cgroup/engines/one/memory.current", "1000000000");
	expect_in(daemon(status(), list), Finding::Warn, "cgroup", "e? (pid 88)");
	put("/sys/fs/cgroup/engines/one/memory.max", "max");
	put("/sys/fs/cgroup/engines/memory.max", "1073741824");
	put("/sys/fs/cgroup/engines/memory.current", "1073741824");
	expect_in(daemon(status(), list), Finding::Warn, "cgroup", "of /sys/fs/cgroup/engines");
	put("/sys/fs/cgroup/engines/memory.max", "max");
	for (const Finding &f : daemon(status(), list))
		EXPECT_NE(f.topic, "cgroup") << f.text;
	json tiers = status();
	tiers["tiers"]["warm"]["nodes"] = {2};
	put("/sys/fs/cgroup/engines/one/cpuset.mems.effective", "0-2");
	for (const Finding &f : daemon(tiers, list))
		EXPECT_NE(f.topic, "cgroup") << f.text;
	put("/sys/fs/cgroup/engines/one/cpuset.mems.effective", "0-1");
	expect_in(daemon(tiers, list), Finding::Warn, "cgroup", "may not use warm node 2");

	json broken = status();
	broken["store"]["checksum_failures"] = 3;
	expect_in(daemon(broken, list), Finding::Warn, "spill store", "3 checksum failures");
	for (const char *odd : {"null", "[]", R"({"arenas":[7]})", R"({"arenas":{}})",
				R"({"tiers":{"warm":{"nodes":["x"]}}})"})
		daemon(json::parse(odd), json::parse(odd));
}

TEST_F(Doctor, WhenTieringCannotHelp)
{
	auto use = [](const json &s, const json &list, const Rates &rates = {}) {
		Findings out;
		examine_use(s, list, rates, out);
		return out;
	};
	json list = json::parse(R"({"arenas":[{"arena":1,"elem_bytes":1}]})");

	EXPECT_TRUE(use(status(), list).empty());
	json small = status();
	small["tiers"]["warm"]["limit_bytes"] = 50;
	expect_in(use(small, list), Finding::Warn, "sizes", "only mirrors");
	small["tiers"]["cold"]["limit_bytes"] = 149;
	expect_in(use(small, list), Finding::Warn, "sizes", "cold tier is smaller");
	json idle = status();
	idle["uptime_s"] = 601;
	expect_in(use(idle, list), Finding::Note, "use", "no block had to leave");
	list["arenas"][0]["elem_bytes"] = 2;
	expect_in(use(status(), list), Finding::Note, "use", "2 bytes an element");
	list["arenas"][0]["pid"] = 77; /* the daemon's own, of objects */
	EXPECT_TRUE(use(status(), list).empty());
	expect_in(use(status(), list, {5e9, 5000}), Finding::Note, "fetch", "no engine");
	list["arenas"][0]["pid"] = 88;

	/* Llama-70B's KV, 327,680 bytes a token: 65.5 us from a drive of 5 GB/s. */
	list["arenas"][0].update({{"layers", 80}, {"kv_heads", 8}, {"head_dim", 128}});
	expect_in(use(status(), list), Finding::Note, "fetch", "not known");
	expect_in(use(status(), list, {5e9, 5000}), Finding::Good, "fetch",
		  "65.5 us from the drive");
	expect_in(use(status(), list, {5e9, 5100}), Finding::Warn, "fetch", "not the 3x");
	/* Where no daemon answers, what was measured is not passed over in silence. */
	EXPECT_TRUE(use({}, {}).empty());
	expect_in(use({}, {}, {5e9, 0}), Finding::Note, "fetch", "no engine");
	for (const char *odd : {"null", "[]", R"({"arenas":[7]})", R"({"arenas":{}})"})
		use(json::parse(odd), json::parse(odd));
}
