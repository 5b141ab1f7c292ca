"""From a policy to vehicles: kinematics, tracking control, pose filters."""
