/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli/doctor.h"

#include "cli/units.h"

#include <fmt/format.h>
#include <linux/magic.h>

namespace cxlkv {

namespace {

/* Of file systems that magic.h does not have. */
constexpr long kNtfsFuse = 0x65735546;
constexpr long kCifs = 0xff534d42;
constexpr long kZfs = 0x2fc12fc1;

void examine_file_system(const SpillPlace &place, Findings &out)
{
	switch (place.fs_type) {
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
		out.push_back({Finding::Bad, "spill store", place.path + " is in memory (tmpfs)",
			       "set [cold] path to a file on a drive, or to a drive of its own"});
		return;
	case NFS_SUPER_MAGIC:
	case kCifs:
	case kNtfsFuse:
		out.push_back({Finding::Warn, "spill store",
			       place.path + " is on a network or FUSE file system",
			       "use a local NVMe drive: a restore waits for every read"});
		return;
	case BTRFS_SUPER_MAGIC:
	case kZfs:
	case OVERLAYFS_SUPER_MAGIC:
		out.push_back({Finding::Warn, "spill store",
			       place.path + " is on a file system that copies on write",
			       "use ext4 or xfs, a file with chattr +C, or a drive of its own"});
		return;
	default:
		out.push_back({Finding::Good, "spill store", place.path, ""});
	}
}

/* The queue's folder; a partition has it in its parent. */
std::string queue_folder(const Host &host, const SpillPlace &place)
{
	std::string device = fmt::format("/sys/dev/block/{}:{}", place.major, place.minor);
	for (const char *queue : {"/queue/", "/../queue/"})
		if (host.exists(device + queue))
			return device + queue;
	return "";
}

void examine_drive(const Host &host, const SpillPlace &place, Findings &out)
{
	std::string queue = queue_folder(host, place);

	if (queue.empty()) {
		out.push_back({Finding::Note, "drive",
			       "which drive holds the spill store is not to be seen here",
			       "make sure that it is an NVMe drive"});
		return;
	}
	if (host.line(queue + "rotational") == "1")
		out.push_back({Finding::Warn, "drive",
			       "the spill store is on a rotating drive, or on one that says so",
			       "use an NVMe drive; a virtual drive may be told to say the truth"});
	else
		out.push_back(
			{Finding::Good, "drive", "the spill store's drive does not rotate", ""});
	if (host.line(queue + "write_cache") == "write back")
		out.push_back({Finding::Note, "drive",
			       "the drive has a volatile write cache: no power-loss protection",
			       "nothing: spilled blocks are worth no more than the engine's "
			       "memory; after a power "
			       "loss what did not arrive is a miss"});
}

} // namespace

void examine_storage(const Host &host, const SpillPlace &place, uint64_t limit_bytes, Findings &out)
{
	if (!place.missing_folder.empty()) {
		out.push_back(
			{Finding::Warn, "spill store",
			 fmt::format("{}: there is no folder {}", place.path, place.missing_folder),
			 "the unit makes /var/lib/cxl-kv when it starts; any other folder has "
			 "to be made, and given to the user cxl-kvd, or [cold] path changed"});
	} else if (!place.is_device) {
		examine_file_system(place, out);
		if (limit_bytes > place.free_bytes)
			out.push_back({Finding::Warn, "space",
				       fmt::format("{} are free for a store of {}",
						   human_bytes(place.free_bytes),
						   human_bytes(limit_bytes)),
				       "make room or lower [cold] size: a full file system means "
				       "blocks that are not spilled"});
	}
	examine_drive(host, place, out);
}

} // namespace cxlkv
