/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Result<T>: a value, or an errno with a message that gains context on its way
 * up. The one error mechanism of the C++ code; nothing throws past main.
 */
#pragma once

#include <cassert>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

namespace cxlkv {

struct Error {
	int code = 0; /* positive errno */
	std::string what;

	/* "context: what"; keeps the errno. */
	[[nodiscard]] Error in(const std::string &context) const
	{
		return {code, context + ": " + what};
	}
};

/* errno as it is now, described. Call it before anything else can change errno. */
inline Error sys_error(const std::string &what)
{
	int code = errno;
	return {code, what + ": " + strerror(code)};
}

inline Error error(int code, std::string what)
{
	return {code, std::move(what)};
}

struct Unit {};

template <typename T = Unit> class [[nodiscard]] Result {
public:
	Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
	Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}

	explicit operator bool() const { return v_.index() == 0; }
	T &operator*() & { return std::get<0>(v_); }
	const T &operator*() const & { return std::get<0>(v_); }
	T &&operator*() && { return std::get<0>(std::move(v_)); }
	T *operator->() { return &std::get<0>(v_); }
	const Error &error() const { return std::get<1>(v_); }

private:
	std::variant<T, Error> v_;
};

inline Result<> ok()
{
	return Unit{};
}

} // namespace cxlkv
