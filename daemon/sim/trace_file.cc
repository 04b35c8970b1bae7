/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sim/trace_file.h"

#include "base/read_file.h"

#include <lzma.h>
#include <memory>

namespace cxlkv::sim {

namespace {

constexpr uint64_t max_lzma_memory = 256ull << 20;

Result<std::string> unpack(const std::string &packed)
{
	lzma_stream stream = LZMA_STREAM_INIT;
	if (lzma_stream_decoder(&stream, max_lzma_memory, LZMA_CONCATENATED) != LZMA_OK)
		return error(ENOMEM, "cannot start the .xz decoder");
	std::unique_ptr<lzma_stream, decltype(&lzma_end)> guard(&stream, lzma_end);

	std::string out;
	std::string chunk(1 << 20, '\0');
	stream.next_in = reinterpret_cast<const uint8_t *>(packed.data());
	stream.avail_in = packed.size();
	for (lzma_ret ret = LZMA_OK; ret != LZMA_STREAM_END;) {
		stream.next_out = reinterpret_cast<uint8_t *>(chunk.data());
		stream.avail_out = chunk.size();
		ret = lzma_code(&stream, LZMA_FINISH);
		if (ret != LZMA_OK && ret != LZMA_STREAM_END)
			return error(EINVAL, "damaged .xz data (liblzma error " +
						     std::to_string(ret) + ")");
		out.append(chunk, 0, chunk.size() - stream.avail_out);
		if (out.size() > max_trace_bytes)
			return error(EFBIG, "larger than 4 GiB once unpacked");
	}
	return out;
}

} // namespace

Result<std::string> read_trace_file(const std::string &path)
{
	auto read = read_file(path, max_trace_bytes);
	if (!read)
		return read;
	const std::string &bytes = *read;
	static const char magic[] = {'\xfd', '7', 'z', 'X', 'Z', '\0'};
	if (bytes.compare(0, sizeof(magic), std::string(magic, sizeof(magic))))
		return read;
	auto unpacked = unpack(bytes);
	if (!unpacked)
		return unpacked.error().in(path);
	return unpacked;
}

} // namespace cxlkv::sim
