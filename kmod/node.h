/* SPDX-License-Identifier: GPL-2.0 */
/* Nodes, and what they are made of: what node.c, discover.c, region.c, perf.c and sysfs.c share. */
#ifndef CXL_KV_NODE_H
#define CXL_KV_NODE_H

#include <linux/device.h>
#include <linux/list.h>
#include <linux/memory-tiers.h>
#include <linux/mutex.h>
#include <linux/node.h>
#include <linux/types.h>

enum cxl_kv_node_origin {
	CXL_KV_NODE_ADOPTED, /* was online before us; we only describe it */
	CXL_KV_NODE_ADDED,   /* hot-added by us; ours to remove */
};

struct cxl_kv_node {
	struct device dev;
	struct list_head link; /* changed by the module's init and exit only */
	enum cxl_kv_node_origin origin;
	int nid;
	u64 base;
	u64 size_bytes;
	int adistance;
	const char *adistance_source;
	struct access_coordinate perf; /* ns, MB/s; 0 = unknown */
	const char *perf_source;

	struct mutex lock; /* of removal */
	bool present;	   /* false once removed */
	int mgid;
	char *res_name; /* in /proc/iomem while the memory is present: must outlive it */
	struct memory_dev_type *mtype;
	struct device *region; /* the CXL region that it is, frozen while present; or NULL */
};

/* What a node is made from. Zero, or NULL: not known. */
struct cxl_kv_place {
	u64 base;
	u64 size_bytes;
	int nid;
	int adistance;
	struct access_coordinate perf;
	struct device *region;
};

/* node.c */
extern struct list_head cxl_kv_nodes;
int cxl_kv_node_add(const struct cxl_kv_place *place);
int cxl_kv_node_adopt(const struct cxl_kv_place *place);
int cxl_kv_node_remove(struct cxl_kv_node *node);
void cxl_kv_node_free(struct cxl_kv_node *node);
bool cxl_kv_node_is_known(int nid);

/* discover.c */
int cxl_kv_nodes_init(void);
/* The module has all nodes that it will have: before that, none is removed by others. */
bool cxl_kv_nodes_settled(void);
void cxl_kv_nodes_exit(void);

/* region.c */
struct cxl_kv_region {
	struct device *dev; /* lives as long as the visit */
	u64 base;
	u64 size_bytes;
	bool is_ram;
	bool committed;
};

struct cxl_kv_holder {
	char device[32];
	char driver[32];
};

/* Calls @fn for each region until it returns other than 0, which is returned. */
int cxl_kv_regions_for_each(int (*fn)(const struct cxl_kv_region *region, void *arg), void *arg);
bool cxl_kv_region_is_committed(struct device *region);
bool cxl_kv_region_is_held(const struct cxl_kv_region *region, struct cxl_kv_holder *holder);
bool cxl_kv_find_holder(u64 start, u64 end, struct cxl_kv_holder *holder);
void cxl_kv_region_freeze(struct device *region, bool frozen);
void cxl_kv_region_freeze_parent(struct device *region, bool frozen);
bool cxl_kv_region_perf(struct device *region, struct access_coordinate *perf);

/* perf.c: what HMAT says of a node, seen from the CPUs that are nearest to it */
bool cxl_kv_hmat_perf(int nid, struct access_coordinate *perf);

/* sysfs.c: consumes the node where it fails */
int cxl_kv_sysfs_add_node(struct cxl_kv_node *node);

#endif /* CXL_KV_NODE_H */
