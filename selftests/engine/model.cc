/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/model.h"
#include "engine/hash.h"

#include <bit>
#include <fmt/format.h>
#include <fstream>
#include <span>

namespace cxlkv::engine {

namespace {

constexpr uint32_t magic = 0x4B56544D;
constexpr size_t header_words = 8;
/* Bounds keep every product below within 64 bits and a wrong file from asking for all memory. */
constexpr uint32_t max_width = 1u << 16, max_count = 1024;

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

uint64_t nr_weights(const ModelShape &s)
{
	uint64_t dim = s.dim;
	uint64_t attention = dim * s.q_dim() * 2 + dim * s.kv_dim() * 2;
	uint64_t layer = 2 * dim + attention + 3 * dim * s.ffn;

	return dim * s.vocab + s.layers * layer + dim;
}

std::string check_shape(const ModelShape &s)
{
	auto bad = [](const char *name, uint32_t value, uint32_t max) {
		return value < 1 || value > max
			       ? fmt::format("{} is {}, not within 1..{}", name, value, max)
			       : std::string();
	};
	for (const std::string &what :
	     {bad("dim", s.dim, max_width), bad("layers", s.layers, max_count),
	      bad("heads", s.heads, max_count), bad("kv_heads", s.kv_heads, max_count),
	      bad("head_dim", s.head_dim, 1024), bad("ffn", s.ffn, max_width)})
		if (!what.empty())
			return what;
	if (s.vocab != 256)
		return fmt::format("vocab is {}; a byte-level model has 256", s.vocab);
	if (s.heads % s.kv_heads)
		return fmt::format("{} query heads do not divide among {} KV heads", s.heads,
				   s.kv_heads);
	if (s.head_dim % vector_floats)
		return fmt::format("head_dim is {}, not a multiple of {}", s.head_dim,
				   vector_floats);
	return {};
}

/* Hands the file's floats out in order. The size was checked. */
class Weights {
public:
	explicit Weights(std::span<const float> all) : rest_(all) {}

	std::vector<float> vector(size_t n)
	{
		std::vector<float> v(rest_.begin(), rest_.begin() + static_cast<ptrdiff_t>(n));
		rest_ = rest_.subspan(n);
		return v;
	}
	Matrix matrix(uint32_t out, uint32_t in)
	{
		Matrix m(rest_.data(), out, in);
		rest_ = rest_.subspan(size_t{out} * in);
		return m;
	}

private:
	std::span<const float> rest_;
};

Layer take_layer(Weights &w, const ModelShape &s)
{
	Layer l;
	l.norm1 = w.vector(s.dim);
	l.wq = w.matrix(s.q_dim(), s.dim);
	l.wk = w.matrix(s.kv_dim(), s.dim);
	l.wv = w.matrix(s.kv_dim(), s.dim);
	l.wo = w.matrix(s.dim, s.q_dim());
	l.norm2 = w.vector(s.dim);
	l.gate = w.matrix(s.ffn, s.dim);
	l.up = w.matrix(s.ffn, s.dim);
	l.down = w.matrix(s.dim, s.ffn);
	return l;
}

Result<ModelShape> read_header(std::ifstream &in, uint64_t size)
{
	uint32_t h[header_words];

	if (size < sizeof(h) || !in.read(reinterpret_cast<char *>(h), sizeof(h)))
		return error(EINVAL,
			     fmt::format("{} bytes are too short for a model file's header", size));
	if (h[0] != magic)
		return error(EINVAL,
			     fmt::format("not a model file: magic {:#x}, want {:#x}", h[0], magic));
	ModelShape s{h[1], h[2], h[3], h[4], h[5], h[6], h[7]};
	if (std::string what = check_shape(s); !what.empty())
		return error(EINVAL, "bad model header: " + what);
	uint64_t want = sizeof(h) + nr_weights(s) * sizeof(float);
	if (size != want)
		return error(EINVAL, fmt::format("the file has {} bytes, its header asks for {}",
						 size, want));
	return s;
}

} // namespace

Result<Model> Model::load(const std::string &path)
{
	std::ifstream in(path, std::ios::binary | std::ios::ate);
	if (!in)
		return sys_error(path);
	auto end = in.tellg();
	if (end < 0)
		return error(EIO, path + ": cannot tell its size; is it a regular file?");
	in.seekg(0);

	Result<ModelShape> shape = read_header(in, static_cast<uint64_t>(end));
	if (!shape)
		return shape.error().in(path);
	std::vector<float> all(nr_weights(*shape));
	if (!in.read(reinterpret_cast<char *>(all.data()),
		     static_cast<std::streamsize>(all.size() * sizeof(float))))
		return error(EIO, path + ": read failed");

	Model m;
	Weights w(all);
	m.shape = *shape;
	m.embedding = w.vector(size_t{m.shape.vocab} * m.shape.dim);
	m.unembed = Matrix(m.embedding.data(), m.shape.vocab, m.shape.dim);
	for (uint32_t i = 0; i < m.shape.layers; i++)
		m.layers.push_back(take_layer(w, m.shape));
	m.final_norm = w.vector(m.shape.dim);
	m.weights_hash = hash(all.data(), all.size() * sizeof(float));
	return m;
}

} // namespace cxlkv::engine
