package sock

// PathBytesMax is the longest socket path: sun_path less its final NUL.
const PathBytesMax = 103
