/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "bandwidths.h"

#include "base/json_from.h"
#include "base/log.h"
#include "sys/tier_bench.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cxlkv {

namespace {

constexpr double kSeconds = 0.03; /* a figure */
constexpr uint64_t kMoveBytes = 2u << 20, kDriveBytes = 8u << 20;
constexpr uint32_t kBlockBytes = 64u << 10;

uint64_t ns_of(uint64_t bytes, double MBps)
{
	return static_cast<uint64_t>(static_cast<double>(bytes) * 1e3 / MBps);
}

} // namespace

Result<> Bandwidths::read(const std::string &file)
{
	auto read = json_from_file(file);
	if (!read)
		return read.error();
	const nlohmann::json &figures = *read;
	auto number = [&](const char *pointer) {
		nlohmann::json::json_pointer at(pointer);
		return figures.contains(at) && figures[at].is_number() ? figures[at].get<double>()
								       : 0;
	};
	if (!figures.is_object() || number("/version") != 1)
		return error(EINVAL, file + ": not written by `cxl-kv bench -o`");

	/* Moves go both ways, and of several nodes the worst counts: a promise has to hold. */
	double move_MBps = 0;
	if (figures.contains("moves") && figures["moves"].is_array())
		for (size_t i = 0; i < figures["moves"].size(); i++) {
			double MBps = number(fmt::format("/moves/{}/MBps", i).c_str());
			if (MBps > 0)
				move_MBps = move_MBps > 0 ? std::min(move_MBps, MBps) : MBps;
		}
	if (move_MBps > 0)
		add(WarmToHot, kMoveBytes, ns_of(kMoveBytes, move_MBps));
	if (double MBps = number("/cold/write_MBps"); MBps > 0)
		add(ToCold, kDriveBytes, ns_of(kDriveBytes, MBps));
	if (double MBps = number("/cold/read_MBps"); MBps > 0)
		add(FromCold, kDriveBytes, ns_of(kDriveBytes, MBps));
	double block = number("/cold/block_bytes"), ns = number("/cold/block_read_p50_ns");
	if (block >= 4096 && block <= 1 << 20 && ns > 0)
		add(FromCold, static_cast<uint64_t>(block), static_cast<uint64_t>(ns));
	return ok();
}

void Bandwidths::calibrate(int hot_node, int warm_node, const std::string &store_path)
{
	if (warm_node >= 0) {
		if (auto MBps = measure_move(warm_node, hot_node, kMoveBytes, kSeconds))
			add(WarmToHot, kMoveBytes, ns_of(kMoveBytes, *MBps));
		else
			log_info("bandwidth of warm is learnt in use: {}", MBps.error().what);
	}
	std::string folder = std::filesystem::path(store_path).parent_path();
	auto drive =
		measure_drive(folder.empty() ? "." : folder, kDriveBytes, kBlockBytes, kSeconds);
	if (!drive)
		return log_info("bandwidth of cold is learnt in use: {}", drive.error().what);
	add(ToCold, kDriveBytes, ns_of(kDriveBytes, drive->write_MBps));
	add(FromCold, kDriveBytes, ns_of(kDriveBytes, drive->read_MBps));
	add(FromCold, kBlockBytes, drive->block_read_p50_ns);
}

void Bandwidths::add(Way way, uint64_t bytes, uint64_t ns)
{
	std::lock_guard lock(mutex_);
	models_[way].add(static_cast<double>(bytes), static_cast<double>(ns) / 1e9);
}

double Bandwidths::rate(Way way) const
{
	double rate = models_[way].bytes_per_s();
	return way == WarmToHot ? std::min(rate, static_cast<double>(max_move_)) : rate;
}

FetchPart Bandwidths::part(Way way, uint64_t bytes, uint64_t queued_bytes) const
{
	std::lock_guard lock(mutex_);
	FetchPart part{static_cast<double>(bytes), rate(way), models_[way].fixed_s()};

	if (part.bytes_per_s > 0)
		part.wait_s += static_cast<double>(queued_bytes) / part.bytes_per_s;
	return part;
}

double Bandwidths::MBps(Way way) const
{
	std::lock_guard lock(mutex_);
	return rate(way) / 1e6;
}

uint64_t Bandwidths::nr_transfers(Way way) const
{
	std::lock_guard lock(mutex_);
	return models_[way].nr_transfers();
}

} // namespace cxlkv
