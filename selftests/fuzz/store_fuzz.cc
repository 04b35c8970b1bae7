/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libFuzzer target: recovery from a store whose checkpoint and log are the input.
 * Checksums and identities are put right first, since guessing them would be all
 * that the fuzzer ever did; what is left is what a malicious device could say.
 * Built and run by `make fuzz`.
 */
#include "base/log.h"
#include "sys/spill_store_inspect.h"
#include "sys/spill_store_super.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace cxlkv;

namespace {

constexpr uint32_t kSegments = 8;
constexpr uint64_t kSegmentBytes = 16 * disk::kPage;
constexpr uint64_t kStoreId = 0x1234567;

/* Takes the input apart; zeroes where it has ended. */
class Input {
public:
	Input(const uint8_t *data, size_t size) : data_(data), left_(size) {}
	void take(void *to, size_t bytes)
	{
		size_t n = std::min(bytes, left_);
		memset(to, 0, bytes);
		memcpy(to, data_, n);
		data_ += n;
		left_ -= n;
	}
	template <typename T> T take()
	{
		T value;
		take(&value, sizeof(value));
		return value;
	}
	[[nodiscard]] bool empty() const { return left_ == 0; }

private:
	const uint8_t *data_;
	size_t left_;
};

disk::Superblock make_super()
{
	disk::Superblock super{};
	super.magic = disk::kSuperMagic;
	super.version = disk::kFormatVersion;
	super.store_id = kStoreId;
	super.nr_files = 1;
	super.segment_bytes = kSegmentBytes;
	super.checkpoint_bytes = 4 * disk::kPage;
	disk::seal(super);
	return super;
}

void put_checkpoint(Input &in, const disk::Superblock &super, std::byte *image)
{
	auto *area = image + super.checkpoint_offset(0, 0);
	disk::CheckpointHeader header{};
	header.magic = disk::kCheckpointMagic;
	header.store_id = kStoreId;
	header.payload_bytes = in.take<uint16_t>() % (3 * disk::kPage + 1);
	header.seq = in.take<uint8_t>();
	header.version = in.take<uint8_t>();
	header.in_flight_bytes = in.take<uint32_t>();
	header.nr_segments = in.take<uint8_t>() % 16;
	header.nr_free = in.take<uint8_t>() % 16;
	for (uint32_t &segment : header.open_segment)
		segment = in.take<uint8_t>();
	header.nr_used = in.take<uint8_t>() % 16;
	in.take(area + disk::kPage, header.payload_bytes);
	header.payload_crc = disk::crc32c(0, {area + disk::kPage, header.payload_bytes});
	disk::seal(header);
	memcpy(area, &header, sizeof(header));
}

/* Headers wherever the input wants them, with any fields. */
void put_log(Input &in, const disk::Superblock &super, std::byte *image)
{
	while (!in.empty()) {
		auto page = in.take<uint8_t>() % (kSegments * kSegmentBytes / disk::kPage);
		disk::ExtentHeader header{};
		in.take(&header, 160);
		header.magic = disk::kExtentMagic;
		header.store_id = kStoreId;
		header.seq &= 0xff;
		disk::seal(header);
		memcpy(image + super.log_offset() + page * disk::kPage, &header, sizeof(header));
	}
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const disk::Superblock super = make_super();
	static const size_t bytes = super.log_offset() + kSegments * kSegmentBytes;
	static const int fd = memfd_create("store", MFD_CLOEXEC);
	static auto *image = [] {
		set_log_level(Level::Error);
		if (ftruncate(fd, static_cast<off_t>(bytes)) < 0)
			abort();
		return static_cast<std::byte *>(
			mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	}();
	Input in(data, size);

	memset(image, 0, bytes);
	memcpy(image, &super, sizeof(super));
	put_checkpoint(in, super, image);
	put_log(in, super, image);
	auto loaded = load_image(fmt::format("/proc/self/fd/{}", fd));
	/* Every block that recovery believes in lies inside the file. */
	if (loaded)
		verify_blocks(*loaded, [](const BadBlock &block) {
			if (block.why != "checksum")
				abort();
		});
	return 0;
}
