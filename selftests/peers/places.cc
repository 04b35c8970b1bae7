/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "peers/places.h"

#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <string>
#include <unistd.h>

namespace cxlkv::peers {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t page_bytes = 4096, present = 1ull << 63, frame_mask = (1ull << 55) - 1;

} // namespace

Result<Places> Places::create(int hot_node)
{
	Places self;
	std::string section_bytes;
	std::error_code ec;

	self.pagemap_ = Fd(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
	if (!self.pagemap_)
		return sys_error("/proc/self/pagemap");
	std::ifstream("/sys/devices/system/memory/block_size_bytes") >> section_bytes;
	self.frames_per_section_ = std::strtoull(section_bytes.c_str(), nullptr, 16) / page_bytes;
	if (!self.frames_per_section_)
		return error(EOPNOTSUPP, "the kernel does not say which memory is of which node");
	const fs::path node = fmt::format("/sys/devices/system/node/node{}", hot_node);
	for (const auto &entry : fs::directory_iterator(node, ec)) {
		const std::string name = entry.path().filename();
		if (!name.starts_with("memory") ||
		    name.find_first_not_of("0123456789", 6) != name.npos)
			continue;
		const size_t section = std::stoul(name.substr(6));
		if (section >= self.is_hot_.size())
			self.is_hot_.resize(section + 1);
		self.is_hot_[section] = true;
	}
	if (self.is_hot_.empty())
		return error(ENODEV, fmt::format("{} has no memory", node.string()));
	return self;
}

Result<> Places::look(const std::byte *base, size_t nr, std::vector<Place> &places)
{
	const auto bytes = static_cast<ssize_t>(nr * sizeof(uint64_t));
	const auto at = reinterpret_cast<uintptr_t>(base) / page_bytes * sizeof(uint64_t);

	entries_.resize(nr);
	places.resize(nr);
	if (pread(pagemap_.get(), entries_.data(), nr * sizeof(uint64_t), static_cast<off_t>(at)) !=
	    bytes)
		return sys_error("read /proc/self/pagemap");
	for (size_t i = 0; i < nr; i++) {
		const uint64_t frame = entries_[i] & frame_mask;
		if (!(entries_[i] & present)) {
			places[i] = Place::Nowhere;
			continue;
		}
		if (!frame)
			return error(EPERM, "/proc/self/pagemap hides frame numbers: needs root");
		const uint64_t section = frame / frames_per_section_;
		places[i] = section < is_hot_.size() && is_hot_[section] ? Place::Hot : Place::Warm;
	}
	return ok();
}

} // namespace cxlkv::peers
