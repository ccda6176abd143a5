package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
)

func TestError_RoundTrip(t *testing.T) {
	e := Errorf(CodeConflict, "head is %d", 3).With("head", "s1.x")
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var got *Error
	if err := json.Unmarshal(b, &got); err != nil || got.Code != e.Code || got.Message != e.Message || got.Detail["head"] != "s1.x" {
		t.Errorf("got %+v, %v, want %+v", got, err, e)
	}
}

func TestError_Is(t *testing.T) {
	err := fmt.Errorf("outer: %w", Errorf(CodeBusy, "later"))
	if !errors.Is(err, &Error{Code: CodeBusy}) || errors.Is(err, &Error{Code: CodeIO}) {
		t.Error("errors.Is: got codes mixed up")
	}
	if got := CodeOf(err); got != CodeBusy {
		t.Errorf("CodeOf: got %s, want busy", got)
	}
	if got := CodeOf(errors.New("disk on fire")); got != CodeInternal {
		t.Errorf("CodeOf: got %s, want internal", got)
	}
}

func TestCode_Retryable(t *testing.T) {
	for code, want := range map[Code]bool{
		CodeSessionStarting: true, CodeOverloaded: true, CodeShuttingDown: true,
		CodeUnknownSession: false, CodeReadOnly: false, CodeConflict: false, CodeInternal: false,
	} {
		if got := Errorf(code, "x").Retryable; got != want {
			t.Errorf("%s: got retryable %v, want %v", code, got, want)
		}
	}
}
