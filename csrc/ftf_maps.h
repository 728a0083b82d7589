/* CONTEXT: SIGNAL. /proc/self/maps (man proc_pid_maps) as text and as a sorted table. */
#ifndef FTF_MAPS_H
#define FTF_MAPS_H

#include "ftf_state.h"

/* Fills ftf.maps_text and ftf.maps. Returns 0 or a negative errno. */
int ftf_maps_read(void);
const struct ftf_map *ftf_maps_find(uint64_t address); /* NULL when unmapped or the table is empty */
bool ftf_maps_executable(uint64_t address);
/* The name of a mapping is not terminated: length in name_length. */
const char *ftf_maps_name(const struct ftf_map *map);

#endif
