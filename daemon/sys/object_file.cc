/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/object_file.h"

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <isa-l/crc64.h>
#include <sys/stat.h>

namespace cxlkv {

namespace {

constexpr uint64_t magic = 0x324a424f564b5843; /* "CXKVOBJ2" */

struct FileHeader {
	uint64_t magic, bytes, checksum; /* of what follows */
};

uint64_t checksum_of(const std::string &body)
{
	return crc64_ecma_refl(magic, reinterpret_cast<const uint8_t *>(body.data()), body.size());
}

class Writer {
public:
	template <typename T> void number(T value)
	{
		body.append(reinterpret_cast<const char *>(&value), sizeof(value));
	}
	void text(const std::string &value)
	{
		number(static_cast<uint32_t>(value.size()));
		body += value;
	}

	std::string body;
};

/* The checksum was right; still every count is held against what is there. */
class Reader {
public:
	explicit Reader(const std::string &body) : body_(body) {}

	template <typename T> T number()
	{
		T value{};
		if (body_.size() - at_ < sizeof(value)) {
			good = false;
			return value;
		}
		memcpy(&value, body_.data() + at_, sizeof(value));
		at_ += sizeof(value);
		return value;
	}
	/* Of things of at least so many bytes each. */
	uint32_t count(size_t bytes_each)
	{
		auto nr = number<uint32_t>();
		if (nr > (body_.size() - at_) / bytes_each) {
			good = false;
			return 0;
		}
		return nr;
	}
	std::string text()
	{
		uint32_t nr = count(1);
		std::string value = body_.substr(at_, nr);
		at_ += nr;
		return value;
	}
	[[nodiscard]] bool at_end() const { return at_ == body_.size(); }

	bool good = true;

private:
	const std::string &body_;
	size_t at_ = 0;
};

void write(Writer &out, const SavedObjects::Space &space)
{
	out.text(space.spec.name);
	out.text(space.spec.salt);
	out.number(static_cast<uint32_t>(space.spec.identity.size()));
	for (const std::string &field : space.spec.identity)
		out.text(field);
	out.number(static_cast<uint32_t>(space.spec.groups.size()));
	for (auto [group, bytes] : space.spec.groups) {
		out.number(group);
		out.number(bytes);
	}
	out.number(space.quota_bytes);
}

SavedObjects::Space read_space(Reader &in)
{
	SavedObjects::Space space;

	space.spec.name = in.text();
	space.spec.salt = in.text();
	for (uint32_t nr = in.count(4); nr && in.good; nr--)
		space.spec.identity.push_back(in.text());
	for (uint32_t nr = in.count(8); nr && in.good; nr--) {
		auto group = in.number<uint32_t>();
		space.spec.groups[group] = in.number<uint32_t>();
	}
	space.quota_bytes = in.number<uint64_t>();
	in.good = in.good && space.spec.identity.size() == SpaceSpec::identity_fields.size();
	return space;
}

void write(Writer &out, const SavedObjects::Object &object)
{
	out.number(object.space);
	for (uint64_t word : object.key)
		out.number(word);
	out.number(object.group);
	out.number(object.bytes);
	out.number(object.priority);
	out.number(static_cast<uint32_t>(object.chunks.size()));
	for (const SavedObjects::Chunk &chunk : object.chunks) {
		out.number(chunk.block);
		out.number(chunk.checksum);
	}
}

SavedObjects::Object read_object(Reader &in)
{
	SavedObjects::Object object{};

	object.space = in.number<uint32_t>();
	for (uint64_t &word : object.key)
		word = in.number<uint64_t>();
	object.group = in.number<uint32_t>();
	object.bytes = in.number<uint32_t>();
	object.priority = in.number<uint8_t>();
	for (uint32_t nr = in.count(12); nr && in.good; nr--) {
		auto block = in.number<uint32_t>();
		object.chunks.push_back({block, in.number<uint64_t>()});
	}
	return object;
}

bool write_all(int fd, const void *from, size_t bytes)
{
	for (const char *at = static_cast<const char *>(from); bytes;) {
		ssize_t nr = ::write(fd, at, bytes);
		if (nr <= 0)
			return false;
		at += nr;
		bytes -= static_cast<size_t>(nr);
	}
	return true;
}

Result<std::string> read_body(const std::string &path)
{
	Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
	FileHeader header{};
	struct stat st;

	if (!fd || fstat(fd.get(), &st))
		return sys_error(path);
	if (read(fd.get(), &header, sizeof(header)) != sizeof(header) || header.magic != magic ||
	    static_cast<uint64_t>(st.st_size) != sizeof(header) + header.bytes)
		return error(EBADMSG, path + ": not what this daemon writes");
	std::string body(header.bytes, 0);
	for (size_t at = 0; at < body.size();) {
		ssize_t nr = read(fd.get(), body.data() + at, body.size() - at);
		if (nr <= 0)
			return nr ? sys_error(path) : error(EBADMSG, path + ": it is cut");
		at += static_cast<size_t>(nr);
	}
	if (checksum_of(body) != header.checksum)
		return error(EBADMSG, path + ": its checksum is wrong");
	return body;
}

} // namespace

Result<> save_objects(const std::string &path, const SavedObjects &saved)
{
	const std::string fresh = path + ".new";
	Writer out;

	out.number(saved.chunk_bytes);
	out.number(saved.nr_chunks);
	out.number(static_cast<uint32_t>(saved.spaces.size()));
	for (const auto &space : saved.spaces)
		write(out, space);
	out.number(static_cast<uint32_t>(saved.objects.size()));
	for (const auto &object : saved.objects)
		write(out, object);
	FileHeader header{magic, out.body.size(), checksum_of(out.body)};
	Fd fd(open(fresh.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
	if (!fd || !write_all(fd.get(), &header, sizeof(header)) ||
	    !write_all(fd.get(), out.body.data(), out.body.size()) || fsync(fd.get()) ||
	    rename(fresh.c_str(), path.c_str()))
		return sys_error(fresh);
	Fd folder(open(std::filesystem::path(path).parent_path().c_str(), O_RDONLY | O_CLOEXEC));
	if (!folder || fsync(folder.get()))
		return sys_error(path);
	return ok();
}

Result<SavedObjects> load_objects(const std::string &path)
{
	auto body = read_body(path);
	if (!body)
		return body.error();
	Reader in(*body);
	SavedObjects saved;
	saved.chunk_bytes = in.number<uint32_t>();
	saved.nr_chunks = in.number<uint32_t>();
	for (uint32_t nr = in.count(1); nr && in.good; nr--)
		saved.spaces.push_back(read_space(in));
	for (uint32_t nr = in.count(1); nr && in.good; nr--) {
		saved.objects.push_back(read_object(in));
		in.good = in.good && saved.objects.back().space < saved.spaces.size();
	}
	if (!in.good || !in.at_end())
		return error(EBADMSG, path + ": its contents make no sense");
	return saved;
}

} // namespace cxlkv
