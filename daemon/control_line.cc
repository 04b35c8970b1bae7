/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "control_line.h"

#include "registry.h"

#include <cctype>
#include <cstdlib>
#include <fmt/format.h>

namespace cxlkv {

using nlohmann::json;

std::optional<uint32_t> get_u32(const json &in, const char *name)
{
	auto it = in.find(name);
	if (it == in.end() || !it->is_number_unsigned() || it->get<uint64_t>() > UINT32_MAX)
		return {};
	return it->get<uint32_t>();
}

std::optional<uint64_t> get_u64_text(const json &in, const char *name)
{
	auto it = in.find(name);
	if (it == in.end() || !it->is_string())
		return {};
	const std::string &text = it->get_ref<const std::string &>();
	char *end = nullptr;
	errno = 0;
	uint64_t value = strtoull(text.c_str(), &end, 10);
	if (text.empty() || !isdigit(static_cast<unsigned char>(text[0])) || *end || errno)
		return {};
	return value;
}

std::string get_text(const json &in, const char *name)
{
	auto it = in.find(name);
	return it != in.end() && it->is_string() ? it->get<std::string>() : "";
}

uint64_t deadline_of(const json &in)
{
	auto ms = get_u32(in, "deadline_ms");
	return ms ? monotonic_ns() + uint64_t{*ms} * 1000000 : 0;
}

void Answer::ok(json fields, int fd) const
{
	fields["id"] = id;
	fields["ok"] = true;
	send(fields, fd);
}

void Answer::fail(int code, const std::string &message, json fields) const
{
	const char *name = strerrorname_np(code);

	fields["id"] = id;
	fields["error"] = name ? name : "EIO";
	fields["message"] = message;
	send(fields);
}

/* What a client sent may have been cut within a character, and dump() throws on that unless told.
 */
void Answer::send(const json &fields, int fd) const
{
	socket->reply(connection, fields.dump(-1, ' ', false, json::error_handler_t::replace), fd);
}

std::function<void(const Result<> &)> answered(const Answer &answer)
{
	return [answer](const Result<> &result) {
		if (result)
			answer.ok();
		else
			answer.fail(result.error().code, result.error().what);
	};
}

void Answer::outcome(const Outcome &o) const
{
	if (!o.error)
		return ok();
	std::string message = strerror(o.error);
	if (o.error == EBUSY)
		message = "no room in memory, or blocks in use: give leases back or park a session";
	else if (o.error == EIO)
		message = fmt::format("block {} could not be restored; recompute it", o.block);
	else if (o.error == ENODATA)
		message = fmt::format("block {} was never made", o.block);
	fail(o.error, message, {{"block", o.block}});
}

} // namespace cxlkv
