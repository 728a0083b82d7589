/* CONTEXT: NORMAL. The current thread's Python frames by the ordinary Python API, for when CPython's dumper is gone. */
#ifndef FTF_FRAMES_H
#define FTF_FRAMES_H

/* Appends them to ftf.dump_text, worded as the dumper words them. Installed as ftf.frames_dump and called only in the
   sandbox: it allocates and trusts the interpreter, so it may hang or fault there. */
void ftf_frames_dump(void);

#endif
