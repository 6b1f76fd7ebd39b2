package config

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// apacheHome refuses to begin an empty store where RocketMQ would go on with the one in the
// home directory: with the same file, which names no directory, a broker would come back
// under its name without its messages. Whoever says where data is means it.
func (l *loader) apacheHome(path string, environ []string) {
	if path == "" || l.mode&Broker == 0 || l.getText("storage") != "commitlog" || l.getText("storePathRootDir") != "" || l.origin["data"] != (Source{}) {
		return
	}
	if ext := filepath.Ext(path); ext != ".conf" && ext != ".properties" {
		return
	}
	name := "HOME"
	if runtime.GOOS == "windows" {
		name = "USERPROFILE"
	}
	home, _ := lookupIn(environ)(name)
	if home == "" {
		return
	}
	store := filepath.Join(home, "store")
	if st, err := os.Stat(filepath.Join(store, "commitlog")); err != nil || !st.IsDir() {
		return
	}
	l.fail(&Error{Kind: ErrRefused, Key: "storePathRootDir", Source: Source{Kind: FromFile, Name: path}, Reason: fmt.Sprintf(
		"the file does not set it; for RocketMQ that is %s, where a store is, and here %s: set storePathRootDir=%s to go on with that store, or data to begin with another one",
		store, filepath.Join(l.getText("data"), "store"), store)})
}
