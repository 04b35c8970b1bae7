/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints: what sampling finds, the hints taken, arenas and nodes that come and go. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM cxl_kv

#if !defined(CXL_KV_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define CXL_KV_TRACE_H

#include <linux/tracepoint.h>
#include <uapi/linux/cxl_kv.h>

/* 64 pages of an arena from @first_page, a multiple of 64; bit i is page @first_page + i. */
TRACE_EVENT(cxl_kv_access,
	TP_PROTO(u32 arena, u64 first_page, u64 touched, u64 written, pid_t pid),
	TP_ARGS(arena, first_page, touched, written, pid),
	TP_STRUCT__entry(
		__field(u32, arena)
		__field(pid_t, pid)
		__field(u64, first_page)
		__field(u64, touched)
		__field(u64, written)
	),
	TP_fast_assign(
		__entry->arena = arena;
		__entry->pid = pid;
		__entry->first_page = first_page;
		__entry->touched = touched;
		__entry->written = written;
	),
	TP_printk("arena=%u pid=%d first_page=%llu touched=%#018llx written=%#018llx",
		__entry->arena, __entry->pid, __entry->first_page, __entry->touched,
		__entry->written)
);

TRACE_EVENT(cxl_kv_hint,
	TP_PROTO(u32 arena, const struct cxl_kv_hint *hint),
	TP_ARGS(arena, hint),
	TP_STRUCT__entry(
		__field(u32, arena)
		__field(u8, kind)
		__field(u8, priority)
		__field(u16, score)
		__field(u32, slot)
		__field(u32, head)
		__field(u32, block)
		__field(u32, nr_blocks)
		__field(u32, position)
	),
	TP_fast_assign(
		__entry->arena = arena;
		__entry->kind = hint->kind;
		__entry->priority = hint->priority;
		__entry->score = hint->score;
		__entry->slot = hint->slot;
		__entry->head = hint->head;
		__entry->block = hint->block;
		__entry->nr_blocks = hint->nr_blocks;
		__entry->position = hint->position;
	),
	TP_printk("arena=%u kind=%u slot=%u head=%u block=%u nr_blocks=%u score=%u priority=%u position=%u",
		__entry->arena, __entry->kind, __entry->slot, __entry->head, __entry->block,
		__entry->nr_blocks, __entry->score, __entry->priority, __entry->position)
);

TRACE_EVENT(cxl_kv_arena_state,
	TP_PROTO(u32 arena, pid_t pid, u32 event),
	TP_ARGS(arena, pid, event),
	TP_STRUCT__entry(
		__field(u32, arena)
		__field(pid_t, pid)
		__field(u32, event)
	),
	TP_fast_assign(
		__entry->arena = arena;
		__entry->pid = pid;
		__entry->event = event;
	),
	TP_printk("arena=%u pid=%d %s", __entry->arena, __entry->pid,
		__print_symbolic(__entry->event,
			{ CXL_KV_EVENT_ARENA_ADDED, "added" },
			{ CXL_KV_EVENT_ARENA_REMOVED, "removed" }))
);

#define CXL_KV_NODE_STATE_ADDED		1
#define CXL_KV_NODE_STATE_ADOPTED	2
#define CXL_KV_NODE_STATE_REMOVED	3

TRACE_EVENT(cxl_kv_node_state,
	TP_PROTO(int node, u64 base, u64 size_bytes, u32 state),
	TP_ARGS(node, base, size_bytes, state),
	TP_STRUCT__entry(
		__field(int, node)
		__field(u32, state)
		__field(u64, base)
		__field(u64, size_bytes)
	),
	TP_fast_assign(
		__entry->node = node;
		__entry->state = state;
		__entry->base = base;
		__entry->size_bytes = size_bytes;
	),
	TP_printk("node=%d base=%#llx size_bytes=%llu %s", __entry->node, __entry->base,
		__entry->size_bytes,
		__print_symbolic(__entry->state,
			{ CXL_KV_NODE_STATE_ADDED, "added" },
			{ CXL_KV_NODE_STATE_ADOPTED, "adopted" },
			{ CXL_KV_NODE_STATE_REMOVED, "removed" }))
);

#endif /* CXL_KV_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
