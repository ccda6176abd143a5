// Package eventlog understands event logs: sessions without a header, one
// event a line, in the order in which they happened.
//
// # Format
//
// An event is an object with a string event_type and an object payload, and
// with session_id, cwd, timestamp (RFC 3339) and, in newer files, event_id.
// Every object of the file is an entry; one without an event_id has no id.
//
//	user_input              opens a turn: a user message; its
//	                        reasoning_selection goes just before it
//	assistant_output        an assistant message
//	tool_call               an assistant message with one toolCall block
//	tool_result             a toolResult message; it answers the newest call of
//	                        its call_id in the turn that has no result yet
//	turn_status             completed, cancelled, failed or incomplete close the
//	                        turn; where the last three have a text, that is the
//	                        assistant's partial message
//	hook_context_injection  a custom message
//	provider_context_item   a custom message of the context alone
//	reasoning_summary       a marker of the transcript alone
//	compaction              transcript: a marker; context: what is before
//	                        retained_from gives way to a summary message
//	rewind                  both views go back to just before the event to
//	anything else           shows nothing: the local kinds (hook_diagnostic,
//	                        hook_lifecycle, context_cache, session_title,
//	                        diagnostic, usage, preferences), what other events
//	                        say again (assistant_chunk, provider_response_item,
//	                        tool_display_result), and kinds not known
//
// # Decisions
//
// A result whose call has one already (a duplicate) and one without a call (an
// orphan) are in the transcript, noted, and not in the context. A call without
// a result stays in both. A user_input also ends the turn before it. Events
// before the first user_input are a turn of their own.
//
// A compaction is valid when retained_from, an event_id or a record's sequence
// as a number, is an event before it on the active branch. Another is ignored.
// The context begins with exactly that event, even where a result is parted
// from its call. A rewind whose target is not before it on the active branch
// has no effect; a rewind past a compaction undoes it. Of events that share an
// id the last counts.
//
// In the context an output of more than 24,000 characters is its first and
// last 6,000, with a marker between them that says what was left out.
//
// # Memory
//
// About 60 bytes an entry, in pages, some 50 more for a call and 20 for a turn, and 8 for
// each slot of a view in use; no text.
package eventlog
