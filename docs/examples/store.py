#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Keyed objects from Python, by ctypes: stores one, looks it up, loads it again.

Needs libcxl_kv.so.0 where the loader finds it (LD_LIBRARY_PATH) and a cxl-kvd.
"""
import ctypes as c
import os
import select

lib = c.CDLL("libcxl_kv.so.0")
LOAD, STORE = 0, 1


class Options(c.Structure):
    _fields_ = [("size", c.c_uint32), ("on_loss", c.c_uint32), ("loss_ms", c.c_uint32),
                ("reserved", c.c_uint32), ("socket", c.c_char_p), ("name", c.c_char_p),
                ("log", c.c_void_p), ("log_data", c.c_void_p)]


class Key(c.Structure):
    _fields_ = [("bytes", c.c_uint8 * 32), ("group", c.c_uint32)]


class Identity(c.Structure):
    _fields_ = ([(n, c.c_uint32) for n in ("size", "nr_layers", "nr_kv_heads", "head_dim",
                                           "tokens_per_block", "tp_rank", "tp_size", "pp_rank",
                                           "pp_size", "reserved")] +
                [("hash_seed", c.c_uint64), ("rope_theta", c.c_double)] +
                [(n, c.c_char * size) for n, size in (
                    ("model", 128), ("revision", 64), ("weights_hash", 80), ("tokenizer", 80),
                    ("attention", 64), ("rope_scaling", 64), ("hash_algorithm", 32),
                    ("element_type", 16), ("layout", 32))] +
                [("tenant_salt", c.c_uint8 * 32)])


class Group(c.Structure):
    _fields_ = [("group", c.c_uint32), ("object_bytes", c.c_uint32)]


class NsOptions(c.Structure):
    _fields_ = [("size", c.c_uint32), ("flags", c.c_uint32), ("name", c.c_char_p),
                ("identity", c.POINTER(Identity)), ("groups", c.POINTER(Group)),
                ("nr_groups", c.c_size_t)]


class Found(c.Structure):
    _fields_ = [("found", c.c_uint32), ("tier", c.c_uint32), ("estimated_ns", c.c_uint64)]


class Iovec(c.Structure):
    _fields_ = [("base", c.c_void_p), ("len", c.c_size_t)]


class Transfer(c.Structure):
    _fields_ = [("key", Key), ("offset", c.c_uint32), ("iov", c.POINTER(Iovec)),
                ("nr_iov", c.c_size_t)]


class Job(c.Structure):
    _fields_ = [("size", c.c_uint32), ("flags", c.c_uint32), ("deadline_ms", c.c_uint32),
                ("priority", c.c_uint32), ("user_data", c.c_uint64),
                ("transfers", c.POINTER(Transfer)), ("nr", c.c_size_t),
                ("results", c.POINTER(c.c_int32))]


class Completion(c.Structure):
    _fields_ = [("id", c.c_uint64), ("user_data", c.c_uint64), ("nr_failed", c.c_uint32),
                ("error", c.c_int32)]


def check(rc, what):
    if rc < 0:
        raise OSError(-rc, f"{what}: {os.strerror(-rc)}")
    return rc


def run(kv, ns, job_class, key, memory):
    """One job over one key, from its submission to its completion."""
    iov = Iovec(c.addressof(memory), len(memory))
    transfer = Transfer(key, 0, c.pointer(iov), 1)
    job = Job(size=c.sizeof(Job), deadline_ms=5000, priority=35, transfers=c.pointer(transfer), nr=1)
    submit = lib.cxl_kv_submit_load if job_class == LOAD else lib.cxl_kv_submit_store
    check(submit(ns, c.byref(job), None), "submit")
    event_fd = check(lib.cxl_kv_event_fd(kv, job_class), "event")
    done = Completion()
    while not check(lib.cxl_kv_poll(kv, job_class, c.byref(done), c.c_size_t(1)), "poll"):
        select.select([event_fd], [], [])
        os.read(event_fd, 8)
    return done.error


def main():
    kv, ns = c.c_void_p(), c.c_void_p()
    check(lib.cxl_kv_open(c.byref(Options(size=c.sizeof(Options))), c.byref(kv)), "open")
    identity = Identity(size=c.sizeof(Identity), nr_layers=1, model=b"example")
    group = Group(0, 10000)
    options = NsOptions(c.sizeof(NsOptions), 0, b"python", c.pointer(identity), c.pointer(group), 1)
    field = c.create_string_buffer(32)
    check(lib.cxl_kv_ns_open(kv, c.byref(options), field, c.c_size_t(32), c.byref(ns)),
          f"namespace {field.value}")
    key = Key((c.c_uint8 * 32)(*os.urandom(32)), 0)
    stored, loaded = c.create_string_buffer(os.urandom(10000), 10000), c.create_string_buffer(10000)
    check(run(kv, ns, STORE, key, stored), "store")
    found = Found()
    check(lib.cxl_kv_lookup(ns, c.byref(key), c.c_size_t(1), c.byref(found)), "look up")
    check(run(kv, ns, LOAD, key, loaded), "load")
    print("found", found.found, "tier", found.tier, "same", loaded.raw == stored.raw)
    lib.cxl_kv_ns_close(ns)
    lib.cxl_kv_close(kv)


main()
